//! A home with the planted model in it, data for it, and commands that use both.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    planted,
    program::{self, failure, qrae},
};

/// A temporary folder: the model in `planted`, and whatever a test puts beside it.
pub struct Home(TempDir);

impl Home {
    pub fn new() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        planted::write(&home.at("planted"));
        home
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file and gives its path.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let file = self.at(name);
        fs::write(&file, text).unwrap();
        file
    }

    /// `qrae` in this folder, with the planted model for the commands that take one.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = qrae(self.0.path());
        command.current_dir(self.0.path()).env("QRAE_MODEL", self.at("planted")).env("QRAE_THREADS", "1");
        command.args(args);
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        program::run(&mut self.command(args), "")
    }

    /// What a command that succeeds prints; on stdout, and on stderr.
    pub fn said(&self, args: &[&str]) -> (String, String) {
        let output = self.run(args);
        (program::stdout(&output), String::from_utf8(output.stderr).unwrap())
    }

    /// What a command says that fails with this code.
    pub fn fails(&self, args: &[&str], code: i32) -> String {
        failure(&mut self.command(args), "", code)
    }

    pub fn read(&self, name: &str) -> String {
        let file = self.at(name);
        fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
    }

    pub fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).unwrap()
    }
}

/// `number` in the letters that the planted head looks for.
pub fn answer(number: usize) -> String {
    (0..5).map(|digit| char::from(b"ZKX"[number / 3_usize.pow(digit) % 3])).collect()
}

const PLACES: [&str; 5] = ["the harbour", "the old mill", "the long bridge", "the market", "the north tower"];

/// A HotpotQA record of five paragraphs, of which one has the answer. Where it stands differs.
pub fn question(number: usize, answer: &str) -> Value {
    let relevant = number * 7 % 5;
    let paragraph = |(i, place): (usize, &&str)| {
        let end =
            if i == relevant { format!("they call {answer}.") } else { "nobody names any more.".into() };
        json!([
            format!("town {number} part {i}"),
            [format!("in {place} stands a lamp"), format!(" that {end}")]
        ])
    };
    let context: Vec<Value> = PLACES.iter().enumerate().map(paragraph).collect();
    json!({"_id": format!("q{number}"), "question": format!("tell me? what do they call lamp {number}"), "answer": answer,
        "supporting_facts": [[format!("town {number} part {relevant}"), 0]], "context": context})
}

/// Questions `from..to`, each with its own answer.
pub fn questions(from: usize, to: usize) -> Vec<Value> {
    (from..to).map(|number| question(number, &answer(number))).collect()
}

pub fn array(records: &[Value]) -> String {
    Value::from(records).to_string()
}

/// A file without the lines that name a date.
pub fn undated(text: &str) -> String {
    text.lines()
        .filter(|line| !line.trim_start().trim_start_matches('"').starts_with("date"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Names of the observations in a study.
pub fn observations(study: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(study.join("inputs")).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
    files.sort();
    files
}
