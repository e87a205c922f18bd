//! Gets a model ready, and shows that something is happening meanwhile.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::{args::ModelArgs, resolve_model};
use crate::{
    hub::{ModelFiles, Resolver},
    model::card::ModelCard,
    service::{LoadOptions, ServedModel, load::ServeError},
};

/// A model that is ready.
pub(super) struct Ready {
    pub(super) model: ServedModel,
    pub(super) card: Option<ModelCard>,
    pub(super) files: ModelFiles,
    /// Time to load it, without fetching.
    pub(super) took: Duration,
}

/// Finds or fetches the model, then loads it. With `progress`, stderr shows how far it is.
///
/// # Errors
/// When it is nowhere to be had, or its files are unusable.
pub(super) fn load(args: &ModelArgs, options: &LoadOptions, progress: bool) -> anyhow::Result<Ready> {
    let resolver = Resolver::from_env(args.offline, progress)?;
    let (files, card) = resolve_model(&args.model, &resolver)?;
    let begin = Instant::now();
    let spinner = if progress { spinner(&format!("loading {}", args.model)) } else { ProgressBar::hidden() };
    let model = ServedModel::load(&files, card.as_ref(), options);
    spinner.finish_and_clear();
    let model = model.map_err(|error| {
        let head_set = matches!(error, ServeError::HeadSet(_) | ServeError::HeadSetName(_));
        let what =
            if head_set { "the head set cannot be used with {}" } else { "the model {} cannot be used" };
        anyhow::Error::new(error).context(what.replace("{}", &args.model))
    })?;
    Ok(Ready { model, card, files, took: begin.elapsed() })
}

/// A sign of life on stderr; nothing where that is no terminal.
pub(super) fn spinner(label: &str) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{spinner} {msg} {elapsed}").expect("a fixed template: this is a bug");
    let bar = ProgressBar::new_spinner().with_style(style).with_message(label.to_owned());
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}
