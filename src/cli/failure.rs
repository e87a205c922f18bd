//! What is printed when a command fails, and the exit code.

use std::{
    borrow::Cow,
    io::{self, Write},
    process::ExitCode,
};

use super::{score::InputError, terminal::quoted};
use crate::{
    hub::HubError,
    model::card::shipped_head_sets,
    score::heads::{HeadSetError, HeadSetProblem},
    service::{ServiceError, load::ServeError},
};

/// Prints the failure, if there is one. A reader that went away (`| head`) is none.
pub(super) fn report(outcome: anyhow::Result<()>) -> ExitCode {
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    let broken_pipe = |e: &&(dyn std::error::Error + 'static)| {
        e.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(|e| broken_pipe(&e)) {
        return ExitCode::SUCCESS;
    }
    // who closed stderr does not want to know, and the code says it failed
    let _ = io::stderr().write_all(message(&error).as_bytes());
    ExitCode::FAILURE
}

/// `error: …`, then what is behind it where that adds something, then what to try.
fn message(error: &anyhow::Error) -> String {
    let mut told = format!("error: {error}\n");
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !told.contains(&cause) {
            told += &format!("  because: {cause}\n");
        }
    }
    if let Some(hint) = error.chain().find_map(hint) {
        told += &format!("hint: {hint}\n");
    }
    told
}

fn hint(error: &(dyn std::error::Error + 'static)) -> Option<Cow<'static, str>> {
    if let Some(ServeError::HeadSet(HeadSetError {
        problem: HeadSetProblem::OtherModel { found_with, .. },
        ..
    })) = error.downcast_ref()
    {
        return Some(with_model(found_with));
    }
    if let Some(ServiceError::Unknown { field, name, .. }) = of_service(error)
        && field == "head_set"
        && let Some(model) = model_of(name)
    {
        return Some(format!("head set {name} is for another model; {}", with_model(&model)).into());
    }
    plain_hint(error).map(Cow::Borrowed)
}

/// The service's error, also where loading passes it on.
fn of_service<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a ServiceError> {
    match error.downcast_ref() {
        Some(ServeError::HeadSetName(inner)) => Some(inner),
        _ => error.downcast_ref(),
    }
}

fn with_model(model: &str) -> Cow<'static, str> {
    format!("--model {} loads the model it was found with", quoted(model)).into()
}

/// The model that a shipped head set is for.
fn model_of(head_set: &str) -> Option<String> {
    let name = head_set.split('@').next().unwrap_or_default();
    shipped_head_sets().into_iter().find(|set| set.name == name).and_then(|set| set.model)
}

fn plain_hint(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    if error.is::<InputError>() {
        return Some("`qrae score --help` shows the forms a file may have");
    }
    if let Some(HubError::UnknownCard { .. } | HubError::BadName { .. }) = error.downcast_ref() {
        return Some("`qrae models list` shows the cards, and the models on this machine");
    }
    if let Some(ServeError::HeadSet(_)) = error.downcast_ref() {
        return Some(
            "leave --head-set out to use the model's own set; `qrae score` also takes heads by name, with --heads",
        );
    }
    match of_service(error)? {
        ServiceError::NoHeadSet { .. } => Some(
            "`qrae localize` finds heads; name its file with --head-set FILE (`qrae score` also takes --heads L16H7,L13H13)",
        ),
        ServiceError::Unknown { field, .. } if field == "head_set" => {
            Some("`qrae models list` shows the sets there are; a file of one is named by --head-set FILE")
        }
        ServiceError::TooLong { field, .. } | ServiceError::TextTooLong { field, .. }
            if field == "chunks" =>
        {
            Some("--max-tokens-per-chunk N cuts long chunks (and flags them)")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_once_and_hints_last() {
        let inner = HubError::UnknownCard { id: "qwen9".into() };
        let told = message(&anyhow::Error::new(inner).context("the model cannot be used"));
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(lines[0], "error: the model cannot be used");
        assert!(lines[1].starts_with("  because: no model card is called \"qwen9\""), "{told}");
        assert!(lines[2].starts_with("hint: `qrae models list`"), "{told}");
        assert_eq!(message(&anyhow::anyhow!("a").context("not a")), "error: not a\n");
    }

    #[test]
    fn a_head_set_of_another_model_is_told_with_that_model() {
        let problem =
            HeadSetProblem::OtherModel { found_with: "smollm2-135m-instruct".into(), loaded: "qwen".into() };
        let error = anyhow::Error::new(ServeError::HeadSet(HeadSetError { set: "mine".into(), problem }));
        let told = message(&error.context("the head set cannot be used"));
        assert!(told.contains("hint: --model smollm2-135m-instruct loads"), "{told}");
        let unknown = |name: &str| {
            let [field, known] = ["head_set", "none"].map(Into::into);
            let unknown = ServiceError::Unknown { field, name: name.into(), known };
            message(
                &anyhow::Error::new(ServeError::HeadSetName(unknown)).context("the head set cannot be used"),
            )
        };
        let told = unknown("smollm2-135m-instruct");
        assert!(told.contains("is for another model; --model smollm2-135m-instruct"), "{told}");
        assert!(!unknown("nonsense").contains("another model"));
        let odd = HeadSetProblem::NoHeads;
        let told = message(&anyhow::Error::new(ServeError::HeadSet(HeadSetError {
            set: "mine".into(),
            problem: odd,
        })));
        assert!(told.contains("leave --head-set out"), "{told}");
    }

    #[test]
    fn only_long_chunks_can_be_cut() {
        for (field, cut) in [("chunks", true), ("query", false), ("queries[1]", false), ("messages", false)] {
            let long = ServiceError::TextTooLong { field: field.into(), bytes: 9, least: 9, limit: 5 };
            assert_eq!(message(&anyhow::Error::new(long)).contains("--max-tokens-per-chunk"), cut, "{field}");
            let long = ServiceError::TooLong { field: field.into(), prompt: 9, new: 0, limit: 5 };
            assert_eq!(message(&anyhow::Error::new(long)).contains("--max-tokens-per-chunk"), cut, "{field}");
        }
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure() {
        let gone = anyhow::Error::new(io::Error::from(io::ErrorKind::BrokenPipe)).context("printing");
        assert_eq!(report(Err(gone)), ExitCode::SUCCESS);
        assert_eq!(report(Err(anyhow::anyhow!("x"))), ExitCode::FAILURE);
    }
}
