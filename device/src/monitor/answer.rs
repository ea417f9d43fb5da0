//! Which request is answered with what.

use std::io::Cursor;
use std::sync::Arc;

use serde::Serialize;
use tiny_http::{Header, Method, Response};

use super::metrics;
use crate::function::{Adapter, Function};

/// Objects in an answer, unless the request asks for fewer.
const PAGE: usize = 1000;

type Answer = Response<Cursor<Vec<u8>>>;

/// The answer to a request.
pub(super) fn answer(functions: &[Arc<Function>], method: &Method, url: &str) -> Answer {
    if *method != Method::Get {
        return fault(405, "only GET");
    }
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let parts: Vec<_> = path.split('/').skip(1).collect();
    match parts.as_slice() {
        ["metrics"] => text(metrics::CONTENT_TYPE, metrics::metrics(functions)),
        ["functions"] => {
            json(&functions.iter().map(|function| function.adapter().view()).collect::<Vec<_>>())
        }
        ["functions", name, kind] => {
            let named = functions.iter().find(|function| function.adapter().name() == *name);
            match (named, range(query)) {
                (None, _) => fault(404, &format!("no function '{name}'")),
                (_, Err(wrong)) => fault(400, &wrong),
                (Some(function), Ok(range)) => objects(function.adapter(), kind, range),
            }
        }
        _ => fault(404, "known are /metrics, /functions and /functions/NAME/KIND"),
    }
}

/// Objects of one kind, from a number on, and how many at most.
fn objects(adapter: &Adapter, kind: &str, (from, most): (u32, usize)) -> Answer {
    match kind {
        "qps" => json(&adapter.qp_views(from, most)),
        "cqs" => json(&adapter.cq_views(from, most)),
        "eqs" => json(&adapter.eq_views(from, most)),
        "srqs" => json(&adapter.srq_views(from, most)),
        "keys" => json(&adapter.key_views(from, most)),
        _ => fault(404, &format!("no kind '{kind}'; known are qps, cqs, eqs, srqs, keys")),
    }
}

/// The values of `from` and `limit`.
fn range(query: &str) -> Result<(u32, usize), String> {
    let (mut from, mut most) = (0, PAGE);
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let wrong = || format!("'{part}': known are from=NUMBER and limit=1…{PAGE}");
        match part.split_once('=') {
            Some(("from", value)) => from = value.parse().map_err(|_| wrong())?,
            Some(("limit", value)) => {
                let limit = value.parse().ok().filter(|limit| (1..=PAGE).contains(limit));
                most = limit.ok_or_else(wrong)?;
            }
            _ => return Err(wrong()),
        }
    }
    Ok((from, most))
}

fn json(value: &impl Serialize) -> Answer {
    match serde_json::to_string(value) {
        Ok(body) => text("application/json", body),
        Err(error) => fault(500, &error.to_string()),
    }
}

fn fault(status: u16, what: &str) -> Answer {
    text("text/plain; charset=utf-8", format!("{what}\n")).with_status_code(status)
}

fn text(kind: &str, body: String) -> Answer {
    let answer = Response::from_string(body);
    match Header::from_bytes("Content-Type", kind) {
        Ok(header) => answer.with_header(header),
        Err(()) => answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_parsed() {
        assert_eq!(range(""), Ok((0, PAGE)));
        assert_eq!(range("from=5&limit=7"), Ok((5, 7)));
        for wrong in ["from", "from=x", "limit=0", "limit=1001", "form=1"] {
            assert!(range(wrong).expect_err(wrong).contains(wrong), "{wrong}");
        }
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let status = |method, url| answer(&[], &method, url).status_code().0;
        assert_eq!(status(Method::Get, "/metrics"), 200);
        assert_eq!(status(Method::Get, "/functions"), 200);
        assert_eq!(status(Method::Get, "/functions/a/qps"), 404);
        assert_eq!(status(Method::Get, "/"), 404);
        assert_eq!(status(Method::Post, "/metrics"), 405);
    }
}
