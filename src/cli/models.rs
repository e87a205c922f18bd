//! `qrae models`: what there is, and fetching it.

use std::io::{self, Write};

use clap::{Args, Subcommand, builder::FalseyValueParser};
use comfy_table::{CellAlignment, Table, presets};
use indicatif::HumanBytes;

use super::{resolve_model, terminal::Screen};
use crate::{
    hub::{CachedKind, CachedModel, ModelFiles, Resolver},
    model::card::{ModelCard, shipped_cards, shipped_head_sets},
};

/// List models, or fetch them
#[derive(Args, Debug)]
pub(super) struct ModelsArgs {
    #[command(subcommand)]
    command: ModelsCommand,
}

#[derive(Debug, Subcommand)]
enum ModelsCommand {
    /// List the models with a card, and all others on this machine
    List,
    /// Fetch models without loading them
    #[command(
        after_help = "Examples:\n  qrae models pull qwen2.5-coder-0.5b-instruct\n  qrae models pull OWNER/NAME:FILE.gguf"
    )]
    Pull {
        /// Card ids or OWNER/NAME[:FILE.gguf][@REVISION]
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// Only check that they are on this machine
        #[arg(long, env = "QRAE_OFFLINE", value_parser = FalseyValueParser::new())]
        offline: bool,
    },
}

pub(super) fn run(args: &ModelsArgs) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match &args.command {
        ModelsCommand::List => list(&mut out)?,
        ModelsCommand::Pull { names, offline } => {
            let resolver = Resolver::from_env(*offline, true)?;
            for name in names {
                let (ModelFiles::Gguf(path) | ModelFiles::Folder(path)) = resolve_model(name, &resolver)?.0;
                writeln!(out, "{name}\t{}", path.display())?;
            }
        }
    }
    Ok(())
}

fn list(out: &mut impl Write) -> anyhow::Result<()> {
    let screen = Screen::stdout();
    let resolver = Resolver::from_env(true, false)?;
    let mut cached = resolver.list_cached();
    let mut cards = table(&["model", "size", "here", "licence", "head set"]);
    for card in shipped_cards() {
        let here = cached.iter().position(|model| is_cards(model, &card)).map(|at| cached.remove(at));
        cards.add_row([
            card.id.clone(),
            here.as_ref().map_or_else(|| "-".into(), |model| HumanBytes(model.bytes).to_string()),
            if here.is_some() { "yes" } else { "no" }.into(),
            card.licence.clone(),
            head_set(&card),
        ]);
    }
    writeln!(out, "{}\n{}\n", screen.bold("Models with a card"), cards.trim_fmt())?;
    let place = resolver.cache_dir.display();
    if cached.is_empty() {
        writeln!(out, "No other models in {place} or the hub's cache.")?;
    } else {
        let mut others = table(&["model", "size", "form"]);
        for model in cached {
            let form = if model.kind == CachedKind::Gguf { "GGUF" } else { "safetensors" };
            others.add_row([model.name, HumanBytes(model.bytes).to_string(), form.into()]);
        }
        let title = format!("Others on this machine ({place} and the hub's cache)");
        writeln!(out, "{}\n{}", screen.bold(&title), others.trim_fmt())?;
    }
    writeln!(
        out,
        "{}",
        screen.dim("Any of these names can be given to --model; `qrae models pull NAME` fetches one.")
    )?;
    Ok(())
}

/// Whether a file here is the one the card means.
fn is_cards(model: &CachedModel, card: &ModelCard) -> bool {
    let Some(file) = card.files.first() else { return false };
    let hub_name = format!("{}:{}", card.repository, file.hub_path());
    model.name == file.name || model.name.split('@').next() == Some(&hub_name)
}

/// The default head set and how far it can be trusted.
fn head_set(card: &ModelCard) -> String {
    let Some(name) = &card.default_head_set else { return "none: cannot score without --heads".into() };
    let set = shipped_head_sets().into_iter().find(|set| set.name == *name);
    match set {
        Some(set) if set.provisional => format!("{} (provisional)", heads(&set.heads)),
        Some(set) => heads(&set.heads),
        None => name.clone(),
    }
}

fn heads(heads: &[crate::ids::HeadRef]) -> String {
    heads.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// A table without lines whose second column (a size) is to the right.
fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
