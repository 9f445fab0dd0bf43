//! `display`: shows the windows of a program that runs on another machine, on this node's screen
//! (Capone, secure channels and capabilities, figure "Xpra Service").
//!
//! The machine of the program runs an xpra server. This node runs `xpra attach`, which connects to
//! the server through a private Unix socket and the stream of the session.

mod config;
mod tunnel;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use levada_core::{Identity, Params};
use levada_service::stdio::{FAILURE_EXIT, Message};
use levada_service::{
    DefinitionError, Invocation, Over, Prepared, Refused, Service, ServiceError, ServiceType,
    check_none, exit,
};
use levada_session::Stream;
use tokio::net::UnixListener;
use tokio::select;
use tokio::time::sleep;

use crate::desktop::screen::Screen;
use crate::desktop::xpra::{Side, WindowOptions, Xpra, private_folder};
use crate::exec::program::{Group, Tail};

use config::Options;
use tunnel::Attached;

/// How long xpra may take to connect. It first starts Python, loads its modules and opens the
/// screen.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Name of the socket in its folder.
const SOCKET: &str = "xpra";

/// The type `display`.
pub(crate) fn service_type() -> ServiceType {
    ServiceType::new("display", |definition, _, options: Options| {
        Ok(Arc::new(Display::new(&definition.name, options)?))
    })
}

/// The service of type `display`.
struct Display(Arc<Viewer>);

/// Shows windows on the screen.
struct Viewer {
    screen: Screen,
    options: WindowOptions,
    xpra: Xpra,
    /// Whether a check has found all Python modules. Then it is not repeated.
    modules_found: AtomicBool,
}

/// Why xpra did not connect.
struct Failure {
    /// The message to the client.
    text: String,
    /// Further text for the log of this node only.
    detail: String,
}

impl Display {
    /// The service called `name`.
    fn new(name: &str, options: Options) -> Result<Self, DefinitionError> {
        let machine = |text: String| DefinitionError::Machine { name: name.to_owned(), text };
        let xpra = Xpra::find(Side::Screen).map_err(|missing| machine(missing.to_string()))?;
        let (screen, options) = options.split();
        let screen = Screen::of_service(name, screen)?;
        let modules_found = AtomicBool::new(false);
        Ok(Self(Arc::new(Viewer { screen, options, xpra, modules_found })))
    }
}

impl Viewer {
    async fn show(&self, holder: Identity, stream: Stream) -> Result<(), ServiceError> {
        match self.attach(&holder).await {
            Ok(attached) => attached.run(stream).await,
            Err(failure) => send_failure(stream, failure).await,
        }
    }

    async fn attach(&self, holder: &Identity) -> Result<Attached, Failure> {
        if !self.modules_found.load(Ordering::Relaxed) {
            self.xpra.check_modules().await.map_err(Failure::of)?;
            self.modules_found.store(true, Ordering::Relaxed);
        }
        let folder = private_folder().map_err(|error| Failure::local("create a folder", &error))?;
        let path = folder.path().join(SOCKET);
        let listener =
            UnixListener::bind(&path).map_err(|error| Failure::local("listen", &error))?;
        let (mut group, tail) = self.start(holder, &path, folder.path()).await?;
        group.keep(folder);
        let accepted = select! {
            accepted = listener.accept() => accepted.ok(),
            _ = group.code() => None,
            () = sleep(START_TIMEOUT) => None,
        };
        match accepted {
            Some((socket, _)) => Ok(Attached { group, socket, tail }),
            None => Err(Failure {
                text: "xpra cannot use this node's screen; see the node's log".to_owned(),
                detail: format!("on {}: {}", self.screen.display(), tail.last_line()),
            }),
        }
    }

    async fn start(
        &self,
        holder: &Identity,
        socket: &Path,
        folder: &Path,
    ) -> Result<(Group, Tail), Failure> {
        // The title begins with the identity of the client, because the program chooses the rest of
        // it.
        let title = format!("{}: ", holder.short());
        let options = WindowOptions { title, ..self.options.clone() };
        let launch = self.xpra.attach(&self.screen, socket, folder, &options);
        let group = Group::start(&launch).await;
        let mut group = group.map_err(|error| Failure::local("start xpra", &error))?;
        let tail = Tail::default();
        for output in [group.output.take(), group.error.take()].into_iter().flatten() {
            tail.follow(output);
        }
        Ok((group, tail))
    }
}

impl Failure {
    fn of(error: impl std::fmt::Display) -> Self {
        Self { text: error.to_string(), detail: String::new() }
    }

    fn local(action: &str, error: &std::io::Error) -> Self {
        Self::of(format!("cannot {action}: {error}"))
    }
}

/// Sends the failure to the client.
async fn send_failure(stream: Stream, failure: Failure) -> Result<(), ServiceError> {
    let (mut send, receive) = stream.split();
    send.send(&Message::Failure(&failure.text).to_bytes()).await?;
    exit(send, receive, FAILURE_EXIT).await?;
    Err(ServiceError::Failed(format!("{} {}", failure.text, failure.detail).trim().to_owned()))
}

impl Service for Display {
    fn category(&self) -> &'static str {
        "screen"
    }

    fn prepare(&self, params: &Params, _: Over<'_>) -> Result<Prepared, Refused> {
        check_none(params)?;
        let viewer = self.0.clone();
        Ok(Prepared::stream(move |Invocation { holder, .. }, stream| async move {
            viewer.show(holder, stream).await
        }))
    }
}
