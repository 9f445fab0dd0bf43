//! `display`: shows the windows of a program that runs elsewhere on this node's screen (Capone, secure
//! channels and capabilities, figure "Xpra Service").
//!
//! The program's side runs an xpra server; here `xpra attach` connects to it, over a private Unix socket
//! and the session's stream.

mod config;
mod tunnel;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use levada_core::Identity;
use levada_service::stdio::{FAILURE_EXIT, Message};
use levada_service::{
    DefinitionError, Invocation, Running, Service, ServiceError, ServiceType, exit,
};
use levada_session::Stream;
use tokio::net::{UnixListener, UnixStream};
use tokio::select;
use tokio::time::sleep;

use crate::desktop::screen::Screen;
use crate::desktop::xpra::{Look, Side, Xpra, private_folder};
use crate::exec::program::{Group, Tail};

use config::Options;

/// How long xpra may take until it has connected: Python, its modules and the screen.
const STARTING: Duration = Duration::from_secs(60);
/// The socket's name in its folder.
const SOCKET: &str = "xpra";

/// The type `display`.
pub(crate) fn service_type() -> ServiceType {
    ServiceType::new("display", |definition, _, options: Options| {
        Ok(Arc::new(Display::new(&definition.name, options)?))
    })
}

/// The service of type `display`.
struct Display {
    screen: Screen,
    look: Look,
    xpra: Xpra,
    /// The Python modules were there once: they are not looked for again.
    checked: AtomicBool,
}

/// An xpra that has connected. Dropping it ends it.
struct Attached {
    group: Group,
    socket: UnixStream,
    tail: Tail,
}

/// Why there is none: what the client is told, and what only this node's log is.
struct Failure {
    text: String,
    detail: String,
}

impl Display {
    /// The service called `name`.
    fn new(name: &str, options: Options) -> Result<Self, DefinitionError> {
        let machine = |text: String| DefinitionError::Machine { name: name.to_owned(), text };
        let xpra = Xpra::find(Side::Screen).map_err(|missing| machine(missing.to_string()))?;
        let (choice, look) = options.split();
        let screen = Screen::of_service(name, choice)?;
        Ok(Self { screen, look, xpra, checked: AtomicBool::new(false) })
    }

    async fn show(&self, holder: Identity, stream: Stream) -> Result<(), ServiceError> {
        match self.attach(&holder).await {
            Ok(attached) => tunnel::run(attached, stream).await,
            Err(failure) => refuse(stream, failure).await,
        }
    }

    async fn attach(&self, holder: &Identity) -> Result<Attached, Failure> {
        if !self.checked.load(Ordering::Relaxed) {
            self.xpra.check_modules().await.map_err(Failure::of)?;
            self.checked.store(true, Ordering::Relaxed);
        }
        let folder = private_folder().map_err(|error| Failure::local("make a folder", &error))?;
        let path = folder.path().join(SOCKET);
        let listener =
            UnixListener::bind(&path).map_err(|error| Failure::local("listen", &error))?;
        let (mut group, tail) = self.start(holder, &path, folder.path()).await?;
        group.keep(folder);
        let accepted = select! {
            accepted = listener.accept() => accepted.ok(),
            _ = group.code() => None,
            () = sleep(STARTING) => None,
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
        // Whose window it is, told by us: the rest of the title is the program's.
        let look = Look { title: format!("{}: ", holder.short()), ..self.look.clone() };
        let launch = self.xpra.attach(&self.screen, socket, folder, &look);
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

/// Tells the client why there is nothing to see.
async fn refuse(stream: Stream, failure: Failure) -> Result<(), ServiceError> {
    let (mut send, receive) = stream.split();
    send.send(&Message::Failure(&failure.text).to_bytes()).await?;
    exit(send, receive, FAILURE_EXIT).await?;
    Err(ServiceError::Failed(format!("{} {}", failure.text, failure.detail).trim().to_owned()))
}

impl Service for Display {
    fn category(&self) -> &'static str {
        "screen"
    }

    fn run<'a>(&'a self, invocation: Invocation, stream: Stream) -> Running<'a> {
        Box::pin(self.show(invocation.holder, stream))
    }
}
