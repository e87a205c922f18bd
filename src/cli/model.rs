//! From what the user typed to a model's files and its card.

use std::path::Path;

use crate::{
    hub::{CardFiles, HubError, HubName, ModelFiles, ModelSource, PackageSource, Resolver},
    model::card::{ModelCard, shipped_cards},
};

/// The files of the model that `typed` names, fetched if need be, and its card where it has one.
///
/// `typed` is a path, the name of a file in the model folder, a card's id, or a hub name. A file gets the card that
/// lists a file of its name, wherever it lies, and so does the hub name a card fetches from: a card says how to
/// prompt and score a model, and the checks of its head sets notice a file that only shares the name.
///
/// # Errors
/// When the name means nothing, or the files are neither here nor to be had.
pub fn resolve_model(typed: &str, resolver: &Resolver) -> Result<(ModelFiles, Option<ModelCard>), HubError> {
    let in_folder = resolver.cache_dir.join(typed);
    let is_file_name = Path::new(typed).components().count() == 1 && !Path::new(typed).exists();
    let source = if is_file_name && in_folder.is_file() {
        ModelSource::parse(&in_folder.to_string_lossy())?
    } else {
        ModelSource::parse(typed)?
    };
    let card = shipped_cards().into_iter().find(|card| is_of(&source, card));
    let files = match &card {
        Some(card) if matches!(source, ModelSource::Card(_)) => fetch(resolver, &source, card)?,
        _ => resolver.resolve(&source, |_| None)?,
    };
    Ok((files, card))
}

/// Whether a card is about what the source names.
fn is_of(source: &ModelSource, card: &ModelCard) -> bool {
    match source {
        ModelSource::Card(id) => card.id == *id,
        ModelSource::Gguf(path) => {
            path.file_name().is_some_and(|name| card.files.iter().any(|file| name == file.name.as_str()))
        }
        ModelSource::Hub(HubName { repository, file: Some(file), .. }) => {
            card.repository == *repository && card.files.iter().any(|f| f.hub_path() == file)
        }
        ModelSource::Hub(_) | ModelSource::Folder(_) => false,
    }
}

fn fetch(resolver: &Resolver, source: &ModelSource, card: &ModelCard) -> Result<ModelFiles, HubError> {
    let file = card.files.first().expect("a checked card lists a file: this is a bug");
    let is_piece = |path: &str| card.packages.as_ref().is_some_and(|p| p.member.matches(path));
    let packages =
        card.packages.as_ref().map(|p| PackageSource { packages: &p.packages, is_piece: &is_piece });
    let files = CardFiles {
        id: &card.id,
        repository: Some(&card.repository),
        revision: Some(&card.revision),
        file: &file.name,
        hub_path: file.hub_path(),
        sha256: &file.sha256,
        packages,
    };
    resolver.resolve(source, |_| Some(files))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn offline(dir: &Path) -> Resolver {
        let at = dir.to_path_buf();
        Resolver::from_vars(true, false, |name| match name {
            "QRAE_MODELS" => Some(at.join("models").into()),
            "HF_HOME" => Some(at.join("hf").into()),
            _ => None,
        })
        .unwrap()
    }

    #[test]
    fn a_file_with_a_cards_name_gets_the_card_wherever_it_lies() {
        let dir = tempfile::tempdir().unwrap();
        let resolver = offline(dir.path());
        fs::create_dir_all(&resolver.cache_dir).unwrap();
        let card = &shipped_cards()[0];
        let name = &card.files[0].name;
        let typed = dir.path().join(name).to_string_lossy().into_owned();
        for (path, typed) in [(dir.path().join(name), &typed), (resolver.cache_dir.join(name), name)] {
            fs::write(&path, "GGUF").unwrap();
            let (files, found) = resolve_model(typed, &resolver).unwrap();
            assert_eq!((files, found.as_ref()), (ModelFiles::Gguf(path), Some(card)), "{typed}");
        }
        fs::write(resolver.cache_dir.join("mine.gguf"), "GGUF").unwrap();
        assert_eq!(resolve_model("mine.gguf", &resolver).unwrap().1, None);
    }

    #[test]
    fn cards_are_found_by_id_and_by_the_hub_name_they_fetch_from() {
        let dir = tempfile::tempdir().unwrap();
        let resolver = offline(dir.path());
        for card in shipped_cards() {
            let hub_name = format!("{}:{}", card.repository, card.files[0].hub_path());
            assert!(is_of(&ModelSource::parse(&hub_name).unwrap(), &card), "{hub_name}");
            for typed in [&card.id, &hub_name] {
                let error = resolve_model(typed, &resolver).unwrap_err();
                assert!(matches!(error, HubError::Offline { .. }), "{typed}: {error:?}");
            }
        }
        assert!(matches!(resolve_model("no-such-card", &resolver), Err(HubError::UnknownCard { .. })));
    }
}
