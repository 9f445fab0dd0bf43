//! Serves the shares that the node has stored.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::{fs, io};

use levada_client::control::{ByUdp, ListingSettings, Paths, ShareSettings};
use levada_core::{Random, SystemRandom};
use levada_home::Home;
use levada_swarm::content::{ContentError, Listing, Source};
use levada_swarm::driver::ShareOptions;
use levada_swarm::mediated::{MAX_REPLICAS, Placement, Settings};
use levada_swarm::mode::Mode;
use levada_swarm::{ChunkSize, UdpStream};
use thiserror::Error;
use tokio::task::spawn_blocking;

use crate::node::Node;
use crate::store::ShareRecord;

/// The listing of a folder that is shared with these settings.
pub(crate) fn listing(settings: &ShareSettings) -> Listing {
    settings.listing.map_or(Listing::FIRST, |ListingSettings { times, modes }| Listing {
        times,
        modes,
        ..Listing::default()
    })
}

/// The mode of the swarm of a share with these settings.
pub(crate) fn mode(settings: &ShareSettings) -> Mode {
    let Some(mediated) = &settings.mediated else { return Mode::Direct };
    let cache = mediated.cache / u64::from(settings.chunk.max(1));
    let placement = if mediated.in_blocks { Placement::Blocks } else { Placement::Stripes };
    Mode::Mediated(Settings {
        replicas: mediated.replicas.clamp(1, MAX_REPLICAS),
        cache: usize::try_from(cache).unwrap_or(usize::MAX).max(1),
        wait: mediated.wait,
        placement,
    })
}

/// Serves the stored shares. Those whose hashes are not stored are read one after the other.
pub(crate) async fn serve_stored(node: Arc<Node>) {
    let stored = match node.with_store(|store| store.shares()).await {
        Ok(stored) => stored,
        Err(error) => {
            tracing::error!(%error, "cannot read the shares");
            return;
        }
    };
    for share in stored {
        if let Err(error) = serve_one(&node, &share).await {
            tracing::warn!(share = share.id, %error, "a share is not served");
            node.sharing
                .not_served
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(share.id, error.to_string());
        }
    }
}

/// Ends a share of `levada share --foreground` whose process was killed together with the node.
async fn end_left_behind(node: &Node, share: &ShareRecord) {
    let id = share.id;
    let by = node.identity();
    let now = node.now();
    let stopped = node.with_store(move |store| store.stop_share(id, &by, now)).await;
    match stopped {
        Ok(_) => stop(node, share).await,
        Err(error) => tracing::error!(share = id, %error, "cannot stop a share"),
    }
}

/// Why a stored share is not served.
#[derive(Debug, Error)]
enum NotServed {
    #[error("a later version of levada has made it")]
    Later,
    #[error(transparent)]
    Content(#[from] ContentError),
}

async fn serve_one(node: &Node, share: &ShareRecord) -> Result<(), NotServed> {
    let (paths, settings, chunk) = parse(share).ok_or(NotServed::Later)?;
    if settings.foreground {
        end_left_behind(node, share).await;
        return Ok(());
    }
    let changed = ContentError::Changed(paths.first().cloned().unwrap_or_default());
    let file = hashes_file(&node.home, &share.root);
    // A root of stored values says nothing about the length of the last chunk.
    let is_shared = |source: &Source| {
        let id = source.id();
        id.root == share.root && id.geometry.length() == share.length
    };
    let listing = listing(&settings);
    let mut source = open(paths.clone(), listing, chunk, Some(file)).await?;
    if !is_shared(&source) {
        // The stored values may be wrong instead.
        source = open(paths.clone(), listing, chunk, None).await?;
    }
    if !is_shared(&source) {
        return Err(changed.into());
    }
    if settings.udp.is_some() && !node.network.udp {
        tracing::warn!(
            share = share.id,
            "the node does not listen on UDP: a share goes by TCP only"
        );
    }
    let admitted = admitted(node, share.id).await;
    serve(node, share.id, source, &paths, &settings, admitted);
    Ok(())
}

/// How many identities have exchanged a ticket of a share.
async fn admitted(node: &Node, share: i64) -> usize {
    let tickets = node.with_store(move |store| store.tickets(share)).await;
    let exchanged = tickets.iter().flatten().map(|ticket| ticket.exchanged as usize);
    exchanged.sum()
}

/// The paths, settings and chunk size of a stored share; None if a later version has stored it.
fn parse(share: &ShareRecord) -> Option<(Vec<PathBuf>, ShareSettings, ChunkSize)> {
    let Paths(paths) = serde_json::from_str(&share.paths).ok()?;
    let settings: ShareSettings = serde_json::from_str(&share.settings).ok()?;
    let chunk = ChunkSize::new(settings.chunk).ok()?;
    Some((paths, settings, chunk))
}

/// The file with the values of the chunks of a share, 32 bytes each, so that a start need not read
/// what is shared.
fn hashes_file(home: &Home, root: &[u8; 32]) -> PathBuf {
    let hex: String = root.iter().map(|byte| format!("{byte:02x}")).collect();
    home.state_folder().join("shares").join(hex)
}

/// Opens files in the blocking pool. They are read and hashed, unless the file `hashes` has the
/// values of all chunks.
///
/// # Errors
/// [`ContentError`], with the path.
pub(crate) async fn open(
    paths: Vec<PathBuf>,
    listing: Listing,
    chunk: ChunkSize,
    hashes: Option<PathBuf>,
) -> Result<Source, ContentError> {
    let first = paths.first().cloned().unwrap_or_default();
    let work = move || {
        let bytes = hashes.and_then(|file| fs::read(file).ok()).unwrap_or_default();
        let (known, _) = bytes.as_chunks::<32>();
        Source::reopen(&paths, listing, chunk, known)
    };
    match spawn_blocking(work).await {
        Ok(opened) => opened,
        Err(error) => Err(ContentError::File { path: first, error: error.into() }),
    }
}

/// Stores the values of the chunks of `source`, and gives it back; None if the work was ended with
/// the process. Without the values, a later start reads the files.
pub(crate) async fn keep_hashes(node: &Node, source: Source) -> Option<Source> {
    let file = hashes_file(&node.home, &source.id().root);
    let kept = spawn_blocking(move || {
        // From the source itself: a copy of 10 GB's values would stay in the allocator.
        let kept = write_hashes(&file, source.chunk_hashes().as_flattened());
        (source, kept)
    });
    let (source, kept) = kept.await.ok()?;
    if let Err(error) = kept {
        tracing::warn!(%error, "cannot store the hashes of a share; the next start reads its files");
    }
    Some(source)
}

fn write_hashes(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = file.with_extension("new");
    fs::create_dir_all(file.parent().unwrap_or(file))?;
    fs::write(&new, bytes)?;
    fs::rename(new, file)
}

/// Ends a share that the database does not have any longer.
pub(crate) async fn stop(node: &Node, share: &ShareRecord) {
    node.sharing.shares.stop(share.id);
    node.sharing.not_served.lock().unwrap_or_else(PoisonError::into_inner).remove(&share.id);
    let others = node.with_store(|store| store.shares()).await.unwrap_or_default();
    forget_hashes(&node.home, share, &others);
}

/// Removes the hashes that the node of `home` has stored of an ended share, unless one of the
/// `others` has the same content.
pub fn forget_hashes(home: &Home, share: &ShareRecord, others: &[ShareRecord]) {
    if others.iter().all(|other| other.root != share.root) {
        let _ = fs::remove_file(hashes_file(home, &share.root));
    }
}

/// Serves `source` as the share with this number, under the name of its first file. `admitted`
/// identities have access to it already.
pub(crate) fn serve(
    node: &Node,
    number: i64,
    source: Source,
    paths: &[PathBuf],
    settings: &ShareSettings,
    admitted: usize,
) {
    let name = paths.first().and_then(|path| Path::file_name(path)).map(PathBuf::from);
    let mut seed = [0; 8];
    // The choices need no secret: a failure of the generator does not matter.
    let _ = SystemRandom.fill(&mut seed);
    let options = ShareOptions {
        name: name.unwrap_or_else(|| "share".into()),
        mode: match mode(settings) {
            Mode::Direct => Mode::Direct,
            Mode::Mediated(mediated) => Mode::Mediated(mediated.restarted(admitted)),
        },
        // Without it, each peer would wait for an answer in vain.
        udp: settings.udp.filter(|_| node.network.udp).map(|udp| match udp {
            ByUdp::Control => UdpStream::Control,
            ByUdp::Data => UdpStream::Data,
        }),
        upload_limit: settings.upload_limit,
        seed: u64::from_be_bytes(seed),
    };
    node.sharing.shares.start(number, source, options);
}
