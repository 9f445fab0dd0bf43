//! The engine: NATS JetStream. One stream keeps the log of a catalogue, another one the parts of
//! its packages.

use std::time::Duration;

use async_nats::header::{NATS_BATCH_COMMIT, NATS_BATCH_ID, NATS_BATCH_SEQUENCE};
use async_nats::header::{NATS_BATCH_COMMIT_FINAL, NATS_EXPECTED_LAST_SUBJECT_SEQUENCE};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::{
    Config, DiscardPolicy, Info, RawMessageErrorKind, StorageType, Stream,
};
use async_nats::jetstream::{Context, ErrorCode};
use async_nats::{Client, HeaderMap, Request, RequestErrorKind};
use bytes::Bytes;
use data_encoding::HEXLOWER;
use futures_util::StreamExt;
use levada_core::wire::catalogue::MAX_RECORD;
use levada_core::{Digest, Random, SystemRandom, UnixTime};
use tokio::time::timeout;

use super::connect::{Connection, REQUEST_TIMEOUT, unavailable};
use super::options::Options;
use super::record::{self, Snapshot, Subjects};
use crate::store::StoreError;
use crate::store::embedded::replica::{LogId, Record, UploadId};

/// The delay before a retry.
pub const RETRY_DELAY: Duration = Duration::from_millis(100);
/// The key of the log's name in the metadata of its stream.
const LOG_ID: &str = "levada-log";

/// The connections to the engine.
pub struct Engine {
    connection: Connection,
    context: Context,
    parts_connection: Connection,
    parts: Context,
    /// The subjects of the catalogue.
    pub subjects: Subjects,
    log_name: String,
    parts_name: String,
    replicas: usize,
    /// The time for which one part of a package is tried.
    pub part_timeout: Duration,
}

/// Why a record was not written.
#[derive(Debug)]
pub enum WriteError {
    /// Another record has been written to one of the subjects.
    Changed,
    /// It was not written: there is no leader at the moment, or the engine is busy.
    Retry,
    /// The engine has not answered: the record may have been written.
    Uncertain,
    /// It was not written.
    Failed(StoreError),
}

/// What is written to a subject.
pub struct Write<'a> {
    /// Where.
    pub subject: String,
    /// What.
    pub record: &'a Record,
    /// The number of the last record with the subject, 0 for none; `None` if that does not matter.
    pub expected: Option<u64>,
}

impl Engine {
    /// Connects. If no server of the engine answers now, connecting goes on in the background.
    pub async fn connect(options: &Options) -> Result<Self, StoreError> {
        let name = options.name.to_ascii_uppercase();
        let connection = Connection::open(options).await?;
        // Long packages must not delay records.
        let parts_connection = Connection::open(options).await?;
        Ok(Self {
            context: context(&connection.client),
            connection,
            parts: context(&parts_connection.client),
            parts_connection,
            subjects: Subjects::of(&options.name),
            log_name: format!("LEVADA_{name}_LOG"),
            parts_name: format!("LEVADA_{name}_PARTS"),
            replicas: options.replicas,
            part_timeout: 2 * options.write_timeout,
        })
    }

    /// The connection for records.
    pub fn client(&self) -> &Client {
        &self.connection.client
    }

    /// Creates the streams that are missing. The name of the log.
    pub async fn create(&self) -> Result<LogId, StoreError> {
        self.connection.check().await?;
        self.parts_connection.check().await?;
        let longest = self.connection.client.server_info().max_payload;
        if longest < MAX_RECORD {
            let text = format!("its `max_payload` is {longest} bytes; set it to 2MB");
            return Err(StoreError::Misconfigured(text));
        }
        let log = Config {
            subjects: vec![self.subjects.log()],
            deny_delete: true,
            deny_purge: true,
            allow_atomic_publish: true,
            metadata: [(LOG_ID.to_owned(), HEXLOWER.encode(&random_id()?))].into(),
            ..self.config(&self.log_name)
        };
        let parts = Config {
            subjects: vec![self.subjects.parts()],
            max_messages_per_subject: 1,
            ..self.config(&self.parts_name)
        };
        find_or_create(&self.parts, parts).await?;
        let log = find_or_create(&self.context, log).await?;
        self.log_id(log.cached_info())
    }

    /// The stream of the log, and its name. Fails if the log has no leader: a server that is cut
    /// off from the others answers, too.
    pub async fn log(&self) -> Result<(Stream<Info>, LogId), StoreError> {
        self.connection.check().await?;
        let stream = self.context.get_stream(&self.log_name).await;
        let stream = stream.map_err(|error| unavailable(&error))?;
        let info = stream.cached_info();
        if info.cluster.as_ref().is_some_and(|cluster| cluster.leader.is_none()) {
            return Err(unavailable("its log has no leader"));
        }
        let log = self.log_id(info)?;
        Ok((stream, log))
    }

    fn log_id(&self, info: &Info) -> Result<LogId, StoreError> {
        let id = info.config.metadata.get(LOG_ID);
        let id = id.and_then(|id| HEXLOWER.decode(id.as_bytes()).ok()?.try_into().ok());
        id.ok_or_else(|| unavailable(&format!("its stream {} is no log", self.log_name)))
    }

    fn config(&self, name: &str) -> Config {
        Config {
            name: name.to_owned(),
            storage: StorageType::File,
            num_replicas: self.replicas,
            // A full stream refuses, and never forgets.
            discard: DiscardPolicy::New,
            allow_direct: true,
            ..Config::default()
        }
    }

    /// The stream of the parts, on its own connection.
    pub async fn parts(&self) -> Result<Stream<()>, StoreError> {
        self.parts_connection.check().await?;
        self.parts.get_stream_no_info(&self.parts_name).await.map_err(|error| unavailable(&error))
    }

    /// The uploads that have a first part.
    pub async fn uploads(&self) -> Result<Vec<(Digest, UploadId)>, StoreError> {
        let stream = self.parts().await?;
        let info = stream.info_with_subjects(self.subjects.first_parts()).await;
        let mut info = info.map_err(|error| unavailable(&error))?;
        let mut uploads = Vec::new();
        while let Some(part) = info.next().await {
            let (subject, _) = part.map_err(|error| unavailable(&error))?;
            uploads.extend(self.subjects.upload_of(&subject));
        }
        Ok(uploads)
    }

    /// When the first part of an upload was stored; `None` if there is none.
    pub async fn time_of_part(
        &self,
        digest: &Digest,
        upload: &UploadId,
    ) -> Result<Option<UnixTime>, StoreError> {
        let subject = self.subjects.part(digest, upload, 0);
        let part = last_message(&self.parts().await?, &subject).await?;
        Ok(part.map(|part| UnixTime(u64::try_from(part.time.unix_timestamp()).unwrap_or(0))))
    }

    /// Stores a part of a package. It may be stored again.
    pub async fn add_part(&self, subject: String, bytes: Bytes) -> Result<(), WriteError> {
        // The connection may have been lost between two parts.
        self.parts_connection.check().await.map_err(|_| WriteError::Retry)?;
        let request = Request::new().payload(bytes).timeout(Some(REQUEST_TIMEOUT));
        send(&self.parts_connection.client, subject, request).await.map(drop)
    }

    /// The last snapshot, if there is one, and the number of the message that names it; 0 for none.
    pub async fn snapshot(&self) -> Result<(u64, Option<Snapshot>), StoreError> {
        let message = last_message(&self.parts().await?, &self.subjects.snapshot()).await?;
        Ok(message.map_or((0, None), |it| (it.sequence, Snapshot::from_bytes(&it.payload))))
    }

    /// Names a new snapshot, if the last one still is the one that the message `before` names.
    pub async fn name_snapshot(&self, snapshot: &Snapshot, before: u64) -> Result<(), WriteError> {
        let request = Request::new().headers(headers(Some(before)));
        let request = request.payload(snapshot.to_bytes().into());
        let request = request.timeout(Some(REQUEST_TIMEOUT));
        send(&self.parts_connection.client, self.subjects.snapshot(), request).await.map(drop)
    }

    /// Writes a record. Its number.
    pub async fn write(&self, write: Write<'_>) -> Result<u64, WriteError> {
        self.connection.check().await.map_err(WriteError::Failed)?;
        let headers = headers(write.expected);
        self.send_last(write, headers).await
    }

    /// Writes two records, or none: the second follows the first. The number of the second.
    pub async fn write_both(&self, first: Write<'_>, second: Write<'_>) -> Result<u64, WriteError> {
        self.connection.check().await.map_err(WriteError::Failed)?;
        let batch = HEXLOWER.encode(&random_id().map_err(WriteError::Failed)?);
        let [mut before, mut last] = [headers(first.expected), headers(second.expected)];
        for (headers, number) in [(&mut before, "1"), (&mut last, "2")] {
            headers.insert(NATS_BATCH_ID, batch.as_str());
            headers.insert(NATS_BATCH_SEQUENCE, number);
        }
        last.insert(NATS_BATCH_COMMIT, NATS_BATCH_COMMIT_FINAL);
        let payload = record::to_bytes(first.record).into();
        // Without the second record, the first one is nothing.
        let sent = self.connection.client.publish_with_headers(first.subject, before, payload);
        match timeout(REQUEST_TIMEOUT, sent).await {
            Ok(Ok(())) => self.send_last(second, last).await,
            Ok(Err(error)) => Err(WriteError::Failed(unavailable(&error))),
            Err(_) => Err(WriteError::Retry),
        }
    }

    async fn send_last(&self, write: Write<'_>, headers: HeaderMap) -> Result<u64, WriteError> {
        let payload: Bytes = record::to_bytes(write.record).into();
        let request = Request::new().headers(headers).payload(payload);
        let request = request.timeout(Some(REQUEST_TIMEOUT));
        Ok(send(&self.connection.client, write.subject, request).await?.sequence)
    }

    /// The number of the last record with a subject, as the leader knows it; 0 if there is none.
    pub async fn last(&self, subject: &str) -> Result<u64, StoreError> {
        self.connection.check().await?;
        let stream = self.context.get_stream_no_info(&self.log_name).await;
        let stream = stream.map_err(|error| unavailable(&error))?;
        Ok(last_message(&stream, subject).await?.map_or(0, |message| message.sequence))
    }
}

/// The last message with a subject, as the leader knows it.
async fn last_message(
    stream: &Stream<()>,
    subject: &str,
) -> Result<Option<StreamMessage>, StoreError> {
    match stream.get_last_raw_message_by_subject(subject).await {
        Ok(message) => Ok(Some(message)),
        Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
        Err(error) => Err(unavailable(&error)),
    }
}

async fn send(
    client: &Client,
    subject: String,
    request: Request,
) -> Result<PublishAck, WriteError> {
    // The request's own timeout begins when it is sent, and it may wait before.
    let answer = timeout(2 * REQUEST_TIMEOUT, client.send_request(subject, request)).await;
    let answer =
        answer.map_err(|_| WriteError::Uncertain)?.map_err(|error| match error.kind() {
            RequestErrorKind::NoResponders => WriteError::Retry,
            RequestErrorKind::InvalidSubject => WriteError::Failed(unavailable(&error)),
            _ => WriteError::Uncertain,
        })?;
    let answer = serde_json::from_slice::<Response<PublishAck>>(&answer.payload);
    match answer.map_err(|_| WriteError::Uncertain)? {
        Response::Ok(ack) => Ok(ack),
        Response::Err { error } => Err(match error.error_code() {
            ErrorCode::STREAM_WRONG_LAST_SEQUENCE
            | ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT => WriteError::Changed,
            // Too many batches at once, or no quorum.
            ErrorCode::ATOMIC_PUBLISH_TOO_MANY_INFLIGHT
            | ErrorCode::ATOMIC_PUBLISH_INCOMPLETE_BATCH
            | ErrorCode::CLUSTER_NOT_AVAILABLE => WriteError::Retry,
            _ => WriteError::Failed(unavailable(&error)),
        }),
    }
}

/// Those that make the engine refuse what it gets if the last message with the subject is not the
/// expected one.
fn headers(expected: Option<u64>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(expected) = expected {
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, expected.to_string().as_str());
    }
    headers
}

fn context(client: &Client) -> Context {
    let mut context = async_nats::jetstream::new(client.clone());
    context.set_timeout(REQUEST_TIMEOUT);
    context
}

/// The stream of a configuration. Several nodes may create it at once: only the first of them does.
async fn find_or_create(context: &Context, config: Config) -> Result<Stream<Info>, StoreError> {
    let name = config.name.clone();
    if let Ok(stream) = context.get_stream(&name).await {
        return Ok(stream);
    }
    match context.create_stream(config).await {
        Ok(stream) => Ok(stream),
        Err(error) => context.get_stream(&name).await.map_err(|_| unavailable(&error)),
    }
}

/// A random name.
pub fn random_id() -> Result<[u8; 16], StoreError> {
    let mut id = [0; 16];
    SystemRandom.fill(&mut id).map_err(|error| unavailable(&error))?;
    Ok(id)
}
