//! `qrae serve`: the HTTP server around one model, from the first 503 to the last answer.

use std::{
    net::SocketAddr,
    num::{NonZeroU64, NonZeroUsize},
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use clap::Args;
use tokio::{net::TcpListener, sync::oneshot};

use super::{
    args::{AnswerArgs, EngineArgs, LogFormat, ModelArgs},
    load::{self, Ready},
};
use crate::{
    http::{self, AppState, HeaderValue, ServerOptions, Traces},
    service::contexts::Contexts,
    store::{Address, Store},
};

const EXAMPLES: &str = "\
Examples:
  qrae serve --api-key SECRET
  QRAE_API_KEY=SECRET qrae serve --host 0.0.0.0 --port 80 --log-format json
  qrae serve --otlp-endpoint http://localhost:4318
  qrae serve --contexts postgres://user:password@db/qrae
  qrae serve --model OWNER/NAME:FILE.gguf --served-model-name agent --max-model-len 16384

  curl localhost:8080/v1/models -H 'Authorization: Bearer SECRET'";

/// Serve chats and scores over HTTP
///
/// Listens at once; /health answers 503 until the model is loaded. Ctrl-C or SIGTERM ends it after the requests in
/// progress are answered, a second one at once.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// The model's name in requests [default: the card's id, or the file's name]
    #[arg(long, env = "QRAE_SERVED_MODEL_NAME", value_name = "NAME")]
    served_model_name: Option<String>,
    /// A head set's name, or a .toml file of one [default: the model's own]
    #[arg(long, env = "QRAE_HEAD_SET", value_name = "NAME|FILE")]
    head_set: Option<PathBuf>,
    /// Address to listen on; 0.0.0.0 for every one
    #[arg(long, env = "QRAE_HOST", value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: String,
    /// Port to listen on; 0 for a free one
    #[arg(long, env = "QRAE_PORT", value_name = "PORT", default_value_t = 8080)]
    port: u16,
    /// A key that requests must carry; several by repeating the flag, or separated by commas [default: none is asked for]
    #[arg(long, env = "QRAE_API_KEY", value_name = "KEY", value_delimiter = ',', hide_env_values = true)]
    api_key: Vec<String>,
    /// A file with one more key on each line
    #[arg(long, env = "QRAE_API_KEY_FILE", value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Requests in progress, waiting ones included; more are answered 429
    #[arg(long, env = "QRAE_MAX_CONCURRENT_REQUESTS", value_name = "N", default_value = "256")]
    max_concurrent_requests: NonZeroUsize,
    /// Longest request body; longer ones are answered 413
    #[arg(long, env = "QRAE_MAX_BODY_BYTES", value_name = "BYTES", default_value = "4194304")]
    max_body_bytes: NonZeroUsize,
    /// An origin whose pages may ask, as https://example.org, or * for any; repeatable [default: none]
    #[arg(long, env = "QRAE_CORS_ALLOW_ORIGIN", value_name = "ORIGIN", value_delimiter = ',', value_parser = origin)]
    cors_allow_origin: Vec<HeaderValue>,
    /// Take chat templates from requests; only for callers you trust, as a template can take the server's memory
    #[arg(long, env = "QRAE_TRUST_REQUEST_CHAT_TEMPLATE")]
    trust_request_chat_template: bool,
    /// Seconds a request gets, from its arrival; a caller may ask for less in the header X-Request-Timeout [default: any]
    #[arg(long, env = "QRAE_REQUEST_TIMEOUT", value_name = "SECONDS")]
    request_timeout: Option<NonZeroU64>,
    /// Seconds that a request's head, and then its body, may take to arrive, then 408; idle connections are closed after it
    #[arg(long, env = "QRAE_READ_TIMEOUT", value_name = "SECONDS", default_value = "60")]
    read_timeout: NonZeroU64,
    /// Seconds that requests in progress get to finish after Ctrl-C or SIGTERM
    #[arg(long, env = "QRAE_SHUTDOWN_TIMEOUT", value_name = "SECONDS", default_value_t = 30)]
    shutdown_timeout: u64,
    /// Form of the log on stderr
    #[arg(long, env = "QRAE_LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    pub(super) log_format: LogFormat,
    /// Where contexts are kept: a SQLite file, a postgres:// URL that several servers may share, or the word memory
    /// [default: qrae/contexts.sqlite in the user's data folder]
    #[arg(long, env = "QRAE_CONTEXTS", value_name = "PLACE", hide_env_values = true)]
    contexts: Option<Address>,
    /// A collector of OpenTelemetry traces, as http://localhost:4318: gets a span of every request, over OTLP/HTTP
    /// [default: none is sent]
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL", hide_env_values = true)]
    otlp_endpoint: Option<String>,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    engine: EngineArgs,
}

/// An origin as browsers send it.
fn origin(text: &str) -> Result<HeaderValue, String> {
    let host = text.split_once("://").map(|(_, host)| host);
    let valid = text == "*" || host.is_some_and(|host| !host.is_empty() && !host.contains(['/', ' ', '*']));
    let value = HeaderValue::from_str(text).ok().filter(|_| valid);
    value.ok_or_else(|| "an origin is a scheme, a host and perhaps a port: https://example.org:8443".into())
}

pub(super) fn run(args: ServeArgs) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")?;
    let outcome = runtime.block_on(serve(args));
    // a model that is still being loaded is not waited for
    runtime.shutdown_background();
    outcome
}

async fn serve(args: ServeArgs) -> anyhow::Result<()> {
    // a variable that is set to nothing is none
    let collector = args.otlp_endpoint.as_deref().filter(|url| !url.is_empty());
    let traces = collector.map(Traces::to).transpose().context("--otlp-endpoint cannot be used")?;
    let deadline = Duration::from_secs(args.shutdown_timeout);
    let options = ServerOptions {
        api_keys: keys(&args)?,
        max_body_bytes: args.max_body_bytes.get(),
        max_requests: args.max_concurrent_requests.get(),
        trust_request_chat_template: args.trust_request_chat_template,
        cors_origins: args.cors_allow_origin.clone(),
        request_timeout: args.request_timeout.map(|seconds| Duration::from_secs(seconds.get())),
        read_timeout: Duration::from_secs(args.read_timeout.get()),
        shutdown_timeout: Some(deadline),
    };
    let state = AppState::traced(&options, traces.as_ref());
    keep_contexts(&state, args.contexts.clone()).await?;
    let listener = TcpListener::bind((args.host.as_str(), args.port)).await.with_context(|| {
        format!("cannot listen on {}:{}; name another --host or --port", args.host, args.port)
    })?;
    let address = listener.local_addr().context("the listener has no address")?;
    tracing::info!("listening on http://{address}; loading {}", args.model.model);
    warn_if_open(&args, address);
    let (stop, stopped) = oneshot::channel::<()>();
    let until_stopped = async {
        // a dropped sender means the same
        let _ = stopped.await;
    };
    let server = tokio::spawn(http::serve(listener, state.clone(), until_stopped));
    let loading = tokio::task::spawn_blocking(move || load_model(&args));
    tokio::select! {
        loaded = loading => {
            let Ready { model, took, .. } = loaded.context("loading ended early")??;
            tracing::info!(
                "serving {} in {} ({}; loaded in {:.1} s)",
                model.id, model.compute, model.processor, took.as_secs_f64()
            );
            state.install(model);
            stop_signal().await?;
        }
        signal = stop_signal() => signal?,
    }
    tracing::info!("finishing the requests in progress; Ctrl-C again to stop at once");
    drop(stop);
    let end = Instant::now() + deadline;
    let finish = async {
        server.await.context("the server ended early")?;
        let Some(traces) = traces else { return Ok(()) };
        let left = end.saturating_duration_since(Instant::now());
        let sent = tokio::task::spawn_blocking(move || traces.finish(left)).await;
        if !sent.context("sending the last traces ended early")? {
            tracing::warn!("the last traces did not reach the collector in time");
        }
        Ok(())
    };
    tokio::select! {
        finished = finish => finished,
        signal = stop_signal() => signal,
    }
}

/// Opens the store of contexts. A place that was named must work; where none was, a server can do without.
async fn keep_contexts(state: &AppState, named: Option<Address>) -> anyhow::Result<()> {
    let store = match named {
        Some(address) => {
            let store = Store::open(&address).await.context("name another place with --contexts")?;
            tracing::info!("contexts are kept in {address}");
            store
        }
        None => {
            let own = dirs::data_dir().map(|folder| Address::File(folder.join("qrae/contexts.sqlite")));
            let Some(address) = own else {
                tracing::warn!(
                    "there is no data folder, so no contexts are kept; name a place with --contexts"
                );
                return Ok(());
            };
            match Store::open(&address).await {
                Ok(store) => store,
                Err(e) => {
                    tracing::warn!("{e}; no contexts are kept: name a place with --contexts");
                    return Ok(());
                }
            }
        }
    };
    let contexts = Contexts::new(store);
    tokio::spawn(contexts.clone().sweep());
    state.keep_contexts(contexts);
    Ok(())
}

fn load_model(args: &ServeArgs) -> anyhow::Result<Ready> {
    let mut options = args.engine.options();
    options.head_set.clone_from(&args.head_set);
    args.answer.apply(&mut options);
    options.served_name.clone_from(&args.served_model_name);
    load::load(&args.model, &options, args.log_format == LogFormat::Text)
}

/// The keys of flags, variable and file.
fn keys(args: &ServeArgs) -> anyhow::Result<Vec<String>> {
    let mut keys = args.api_key.clone();
    if let Some(file) = &args.api_key_file {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("the key file {} cannot be read", file.display()))?;
        let before = keys.len();
        keys.extend(text.lines().map(str::trim).filter(|key| !key.is_empty()).map(str::to_owned));
        if keys.len() == before {
            bail!("the key file {} holds no key; write one on each line", file.display());
        }
    }
    if keys.iter().any(String::is_empty) {
        bail!("an empty API key would be no lock; leave --api-key out to serve without keys");
    }
    Ok(keys)
}

fn warn_if_open(args: &ServeArgs, address: SocketAddr) {
    let without_keys = args.api_key.is_empty() && args.api_key_file.is_none();
    if without_keys && !address.ip().is_loopback() {
        tracing::warn!("anyone who reaches {address} can use the model; set --api-key");
    }
}

/// Ctrl-C, or what service managers send.
async fn stop_signal() -> anyhow::Result<()> {
    #[cfg(unix)]
    {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
            .context("SIGTERM cannot be listened for")?;
        tokio::select! {
            interrupt = tokio::signal::ctrl_c() => interrupt.context("Ctrl-C cannot be listened for"),
            _ = terminate.recv() => Ok(()),
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await.context("Ctrl-C cannot be listened for")
}
