//! The keys of contexts, records, tags and audits.

use levada_core::label::derive;

use super::{NAMES, Session, Vectors};
use crate::Direction::{ToClient, ToServer};

/// The keys of contexts, records, tags and audits.
pub(super) fn keys(out: &mut Vectors, session: &Session) {
    let Session { path, classes, secret, th2, hops } = session;
    for context in 0..=path.contexts.len() as u8 {
        let of = secret.context(classes, context, th2);
        if let Some(class) = classes.of_context(context) {
            out.put(format!("class of context {context}"), [class]);
        }
        out.secret(format!("R of context {context}"), &of.read);
        of.write.iter().for_each(|write| out.secret(format!("W of context {context}"), write));
        for (direction, name) in [ToServer, ToClient].into_iter().zip(NAMES) {
            let of_name = |what: &str| format!("{what} of context {context} {name}");
            let first = of.record(context, direction);
            out.secret(of_name("T_0"), &first);
            out.secret(of_name("T_1"), &first.derive(derive::UPDATE, &[]));
            out.secret(of_name("key 0"), &first.derive(derive::KEY, &[&[0]]));
            out.put(of_name("iv 0"), first.derive_bytes::<12>(derive::IV, &[&[0]]));
            let writer = of.writer(context, direction);
            writer.iter().for_each(|key| out.secret(of_name("writer"), key));
            out.secret(of_name("endpoint"), &secret.endpoint(context, direction, th2));
        }
    }
    for (direction, name) in [ToServer, ToClient].into_iter().zip(NAMES) {
        out.secret(format!("audit 0 {name}"), &secret.audit(direction, th2));
        for (hop, secrets) in (1..).zip(hops) {
            out.secret(format!("b_{hop} {name}"), &secrets.b(direction, th2).unwrap());
            out.secret(format!("audit {hop} {name}"), &secrets.audit(direction, th2).unwrap());
            let author = secrets.author(2, direction, th2).unwrap();
            out.secret(format!("author {hop} of context 2 {name}"), &author);
        }
    }
    for (hop, secrets) in (1..).zip(hops) {
        out.secret(format!("endorse {hop}"), &secrets.endorse(th2).unwrap());
    }
}
