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
    /// The set in `file`, which must fit; or the shipped sets of the card's model, as far as they do.
    pub(super) fn load(
        card: Option<&ModelCard>,
        file: Option<&PathBuf>,
        target: &HeadTarget<'_>,
    ) -> Result<Self, ServeError> {
        if let Some(file) = file {
            let name = file.file_stem().map_or_else(|| "heads".into(), |s| s.to_string_lossy().into_owned());
            let text = fs::read_to_string(file);
            let text = text.map_err(|e| ServeError::File { file: file.clone(), reason: e.to_string() })?;
            let set = RawHeadSet::parse(&name, &text)?.check(target)?;
            return Ok(Self { sets: vec![set], default: Some(0), unfit: Vec::new() });
        }
        let mut all = Self::default();
        let Some(card) = card else { return Ok(all) };
        for raw in shipped_head_sets().into_iter().filter(|raw| raw.model.as_ref() == Some(&card.id)) {
            match raw.check(target) {
                Ok(set) => all.sets.push(set),
                Err(reason) => {
                    tracing::warn!("a shipped head set is left out: {reason}");
                    all.unfit.push(reason.to_string());
                }
            }
        }
        all.default = all.sets.iter().position(|set| card.default_head_set.as_deref() == Some(set.name()));
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
        self.default.map(|i| &self.sets[i]).ok_or_else(|| self.unknown("default"))
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
