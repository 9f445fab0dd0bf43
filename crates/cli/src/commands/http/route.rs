//! How sessions are opened. A party may move while this runs, so parties that cannot be reached are
//! looked up again.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use levada_client::{Client, ClientError, RequestSpec, Target, Verdict};
use levada_contexts::Context;
use levada_services::http::client::Route;

/// What sessions are opened with.
pub(super) struct Parties {
    pub(super) client: Arc<Client>,
    pub(super) service: String,
    /// The node as it was given, and the middleboxes.
    pub(super) names: (String, Vec<String>),
    pub(super) contexts: Vec<Context>,
    /// Where they were found last.
    pub(super) found: Mutex<Found>,
}

/// The node and the middleboxes.
pub(super) type Found = (Target, Vec<Target>);

/// How sessions are opened: through the middleboxes, if there are any.
pub(super) fn route(parties: Parties) -> Route {
    let direct = parties.contexts.first().is_none_or(|context| context.rights.is_empty());
    let parties = Arc::new(parties);
    if direct {
        return Route::Streams(Box::new(move || {
            let parties = parties.clone();
            Box::pin(async move {
                let Parties { client, service, .. } = &*parties;
                let open = async |(target, _): Found| {
                    let spec = RequestSpec { service: service.clone(), ..RequestSpec::default() };
                    let capability = client.request(&target, spec).await?;
                    client.connect_with_streams(&capability).await
                };
                parties.open(open).await
            })
        }));
    }
    Route::Path(Box::new(move || {
        let parties = parties.clone();
        Box::pin(async move {
            let Parties { client, service, contexts, .. } = &*parties;
            let open = async |(target, hops): Found| {
                client.start_through(&target, service, &hops, contexts.clone()).await
            };
            parties.open(open).await
        })
    }))
}

impl Parties {
    /// Opens a session where the parties were found last. If one of them cannot be reached there,
    /// looks all up and tries once more.
    async fn open<T, F>(&self, open: impl Fn(Found) -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let last = self.found.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let failed = match open(last.clone()).await {
            Err(error) if error.may_have_moved() => error,
            opened => return opened,
        };
        let found = self.look_up(&last).await;
        if found == last {
            return Err(failed);
        }
        let session = open(found.clone()).await?;
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = found;
        Ok(session)
    }

    /// Where the parties are now, by the pins, and for the node also by what this network
    /// announces. A party that is not found keeps its address.
    async fn look_up(&self, (target, hops): &Found) -> Found {
        // A name that is new here is not accepted without a question.
        let node = self.client.resolve(&self.names.0, |_| Verdict::Unasked).await;
        let mut now = Vec::new();
        for (name, last) in self.names.1.iter().zip(hops) {
            let hop = self.client.identify(name, |_| Verdict::Unasked).await;
            now.push(hop.unwrap_or_else(|_| last.clone()));
        }
        (node.unwrap_or_else(|_| target.clone()), now)
    }
}
