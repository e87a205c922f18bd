//! The head sets of a served model: which there are, which is the default, and why others are not.

use std::{fs, path::PathBuf};

use super::{ServiceError, load::ServeError};
use crate::{
    model::card::{ModelCard, shipped_head_sets},
    score::heads::{HeadSet, HeadTarget, RawHeadSet},
};

/// Head sets that fit a loaded model.
#[derive(Clone, Debug, Default)]
pub struct HeadSets {
    sets: Vec<HeadSet>,
    /// The one that requests without a choice use.
    default: Option<usize>,
    /// Why shipped sets of this model do not fit it as it is loaded.
    unfit: Vec<String>,
}

impl HeadSets {
    /// The shipped sets of the card's model, as far as they fit. `choice` is a file, whose set must fit and is then the
    /// only one, or the name of a shipped set that becomes the default.
    pub(super) fn load(
        card: Option<&ModelCard>,
        choice: Option<&PathBuf>,
        target: &HeadTarget<'_>,
    ) -> Result<Self, ServeError> {
        let is_file = |path: &&PathBuf| path.extension().is_some_and(|e| e == "toml") || path.is_file();
        if let Some(file) = choice.filter(is_file) {
            let name = file.file_stem().map_or_else(|| "heads".into(), |s| s.to_string_lossy().into_owned());
            let text = fs::read_to_string(file);
            let text = text.map_err(|e| ServeError::File { file: file.clone(), reason: e.to_string() })?;
            let set = RawHeadSet::parse(&name, &text)?.check(target)?;
            return Ok(Self { sets: vec![set], default: Some(0), unfit: Vec::new() });
        }
        let mut all = Self::default();
        let is_ours = |raw: &RawHeadSet| card.is_some_and(|card| raw.model.as_ref() == Some(&card.id));
        for raw in shipped_head_sets().into_iter().filter(is_ours) {
            match raw.check(target) {
                Ok(set) => all.sets.push(set),
                Err(reason) => {
                    tracing::warn!("a shipped head set is left out: {reason}");
                    all.unfit.push(reason.to_string());
                }
            }
        }
        let own = card.and_then(|card| card.default_head_set.clone());
        let default = match choice {
            Some(name) => Some(all.named(&name.to_string_lossy())?.name().to_owned()),
            None => own,
        };
        all.default = all.sets.iter().position(|set| default.as_deref() == Some(set.name()));
        Ok(all)
    }

    /// The sets, each with whether it is the default.
    pub fn iter(&self) -> impl Iterator<Item = (&HeadSet, bool)> {
        self.sets.iter().enumerate().map(|(i, set)| (set, Some(i) == self.default))
    }

    /// The default set.
    ///
    /// # Errors
    /// When there is none; says why and what to do.
    pub fn default_set(&self) -> Result<&HeadSet, ServiceError> {
        self.default.map(|i| &self.sets[i]).ok_or_else(|| {
            let names = self.sets.iter().map(|set| format!("; there is head_set {:?}", set.name()));
            let unfit = self.unfit.iter().map(|reason| format!(" (left out: {reason})"));
            ServiceError::NoHeadSet { sets: names.chain(unfit).collect() }
        })
    }

    /// The set called `name`, or `name@hash`.
    ///
    /// # Errors
    /// When there is none; names those there are.
    pub fn named(&self, name: &str) -> Result<&HeadSet, ServiceError> {
        self.sets.iter().find(|s| s.name() == name || s.label() == name).ok_or_else(|| self.unknown(name))
    }

    fn unknown(&self, name: &str) -> ServiceError {
        let names: Vec<&str> = self.sets.iter().map(HeadSet::name).collect();
        let mut known = if names.is_empty() {
            "none for this model; pass heads: [\"L16H7\", …]".to_owned()
        } else {
            names.join(", ")
        };
        for reason in &self.unfit {
            known += &format!(" (left out: {reason})");
        }
        ServiceError::Unknown { field: "head_set".into(), name: name.into(), known }
    }
}
