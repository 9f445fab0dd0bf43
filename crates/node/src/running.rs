//! Runs a node: assembles it from a home and its configuration, and serves until it is stopped.

mod announcer;
mod assemble;
mod sockets;
mod stop;

use levada_home::Home;

use crate::check::check;
use crate::error::UpError;
use crate::node::Ending;
use crate::overrides::Overrides;
use crate::{restore, rotate};
use levada_config::Config;

pub use assemble::Announcement;

/// Runs the node of `home` until it is stopped. `announce` is called each time it is ready.
///
/// # Errors
/// [`UpError`] is the problem, and what to do.
pub async fn up(
    home: &Home,
    overrides: &Overrides,
    announce: impl Fn(&Announcement),
) -> Result<(), UpError> {
    let lock = home.lock().map_err(UpError::of)?;
    let mut addresses = Vec::new();
    loop {
        restore::finish_interrupted(home).map_err(UpError::of)?;
        rotate::finish_interrupted(home)?;
        let config = Config::load(&home.config_file()).map_err(UpError::of)?;
        check(home, &config, overrides)?;
        let assembled = assemble::assemble(home, &config, overrides, &addresses)?;
        addresses = assembled.node.network.listening.clone();
        if !overrides.only_catalogue {
            assembled.node.log_notes_about_rules();
        }
        match stop::serve(assembled, &announce).await? {
            Ending::Stop => break,
            Ending::Restart => {}
            Ending::Restore(folder) => restore::restore(home, &folder).map_err(UpError::of)?,
        }
    }
    drop(lock);
    Ok(())
}

#[cfg(test)]
mod tests;
