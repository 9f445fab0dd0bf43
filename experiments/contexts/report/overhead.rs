//! The tables of bytes beyond TLS, and of access to records beside memory.

use levada_contexts::Kem;
use levada_harness::{Params, Row, find};

use super::title;
use crate::contexts::mode::Mode;
use crate::contexts::overhead::{
    CONTEXTS, COPY, E2E, HANDSHAKES, LENGTHS, RECORDS, handshakes, records, sessions,
};
use crate::table::{Table, median, short};

/// The tables of handshakes, records and access.
pub fn tables(rows: &[Row]) -> [Table; 4] {
    let link = |link: &str| {
        let what = format!("Bytes on the {link} ÷ payload; bytes beyond the data of a record");
        let metrics = [format!("{link} ÷ payload"), format!("{link}, beyond a record")];
        of_records(rows, &what, |name, at| {
            let ratio = find(rows, name, &metrics[0], at)?;
            let beyond = find(rows, name, &metrics[1], at)?;
            Some(format!("{:.4}, {:.1}", ratio.median, beyond.median))
        })
    };
    let access = of_records(rows, "MB of payload in a CPU-second of the middlebox", |name, at| {
        find(rows, name, "middlebox", at).map(median)
    });
    [of_handshakes(rows), link("client's link"), link("server's link"), access]
}

/// Bytes of connections without data, a line for each number of middleboxes and contexts and each
/// session.
fn of_handshakes(rows: &[Row]) -> Table {
    let metrics = ["client's link", "server's link"];
    let head = ["handshake", "middleboxes", "contexts", "subject"].into_iter().map(str::to_owned);
    let more = metrics.iter().flat_map(|link| {
        [(*link).to_owned(), format!("{link}, beyond TLS"), format!("{link}, end")]
    });
    let mut table = Table::new("", head.chain(more));
    let mut used = Vec::new();
    for (handshake, resumed) in [("full", false), ("resumed", true)] {
        for cell in HANDSHAKES {
            let at = handshakes(cell, resumed);
            // A resumed session has no key encapsulation.
            let all = sessions().into_iter();
            for session in
                all.filter(|session| !resumed || matches!(session, Mode::Levada(Kem::X25519, _)))
            {
                let name = session.to_string();
                let of = |name: &str, what: &str, link: &str| {
                    find(rows, name, &format!("{what}, {link}"), &at)
                };
                let mut line = vec![handshake.to_owned(), cell.0.to_string(), cell.1.to_string()];
                line.push(format!("`{name}`"));
                for link in metrics {
                    let own = of(&name, "handshake", link).zip(of(&name, "end", link));
                    if let Some(((own, end), tls)) = own.zip(of(E2E, "handshake", link)) {
                        line.extend([own.median, own.median - tls.median, end.median].map(short));
                        used.push(own);
                    }
                }
                table.lines.push(line);
            }
        }
    }
    table.lines.retain(|line| line.len() == table.head.len());
    table.title =
        title("Bytes of the handshake of a connection, and of its end, both ways", "", used);
    table
}

/// A line for each number of contexts and each length of records, a column for each subject.
fn of_records(rows: &[Row], what: &str, cell: impl Fn(&str, &Params) -> Option<String>) -> Table {
    let names: Vec<&str> =
        [E2E].into_iter().chain(RECORDS.map(|(name, _)| name)).chain([COPY]).collect();
    let mut table = Table::new("", ["contexts", "bytes of data"].iter().chain(&names).copied());
    let mut used = Vec::new();
    for contexts in CONTEXTS {
        for length in LENGTHS {
            let at = records(length, contexts);
            let cells: Vec<String> =
                names.iter().map(|name| cell(name, &at).unwrap_or_default()).collect();
            if !cells[0].is_empty() {
                let labels = [contexts.to_string(), length.to_string()];
                table.lines.push(labels.into_iter().chain(cells).collect());
                used.extend(find(rows, E2E, "middlebox", &at));
            }
        }
    }
    table.title = title(what, "", used);
    table
}
