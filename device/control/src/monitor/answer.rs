//! Answers to requests.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Response, StatusCode, Uri};
use serde::Serialize;
use vrnic_abi::admin::fields::Record;
use vrnic_adapter::adapter::Adapter;
use vrnic_adapter::host::Host;
use vrnic_adapter::inspect::Page;

use super::{Watched, json, metrics};

/// Maximum number of objects in an answer.
const PAGE: usize = 1000;

type Answer = Response<Full<Bytes>>;

/// Returns the answer to a request.
pub(super) fn answer(watched: &impl Watched, method: &Method, uri: &Uri) -> Answer {
    if *method != Method::GET {
        let mut answer = fault(StatusCode::METHOD_NOT_ALLOWED, "only GET requests are answered");
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        return answer;
    }
    let parts: Vec<_> = uri.path().split('/').skip(1).collect();
    match parts.as_slice() {
        ["metrics"] => text(metrics::CONTENT_TYPE, metrics::metrics(watched)),
        ["functions"] => json(&watched.views()),
        ["resources"] => json(&watched.resources()),
        ["ports"] => json(&watched.ports()),
        ["functions", name, kind] => {
            let adapters = watched.adapters();
            let named = adapters.iter().find(|adapter| adapter.name() == *name);
            match (named, range(uri.query().unwrap_or_default())) {
                (None, _) => {
                    fault(StatusCode::NOT_FOUND, &format!("there is no function '{name}'"))
                }
                (_, Err(wrong)) => fault(StatusCode::BAD_REQUEST, &wrong),
                (Some(adapter), Ok((from, limit))) => objects(adapter, kind, from, limit),
            }
        }
        _ => fault(
            StatusCode::NOT_FOUND,
            "the paths are /metrics, /ports, /resources, /functions and /functions/NAME/KIND",
        ),
    }
}

/// Returns at most `limit` objects of one kind, from the number `from` on.
fn objects<H: Host>(adapter: &Adapter<H>, kind: &str, from: u32, limit: usize) -> Answer {
    match kind {
        "qps" => page(&adapter.qp_records(from, limit)),
        "cqs" => page(&adapter.cq_records(from, limit)),
        "eqs" => page(&adapter.eq_records(from, limit)),
        "srqs" => page(&adapter.srq_records(from, limit)),
        "connections" => page(&adapter.connection_records(from, limit)),
        "keys" => {
            let mut keys = adapter.key_records(from, limit);
            keys.items.retain(|key| key.valid != 0);
            page(&keys)
        }
        _ => fault(
            StatusCode::NOT_FOUND,
            &format!(
                "there is no kind '{kind}'; the kinds are qps, cqs, eqs, srqs, keys and connections"
            ),
        ),
    }
}

fn page<R: Record>(page: &Page<R>) -> Answer {
    json(&json::Page::new(page.items.iter(), page.next))
}

/// Returns the values of `from` and `limit`.
fn range(query: &str) -> Result<(u32, usize), String> {
    let (mut from, mut limit) = (0, PAGE);
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let wrong = || format!("'{part}' is not valid; use from=NUMBER and limit=1…{PAGE}");
        match part.split_once('=') {
            Some(("from", value)) => from = value.parse().map_err(|_| wrong())?,
            Some(("limit", value)) => {
                let valid = value.parse().ok().filter(|limit| (1..=PAGE).contains(limit));
                limit = valid.ok_or_else(wrong)?;
            }
            _ => return Err(wrong()),
        }
    }
    Ok((from, limit))
}

fn json(value: &impl Serialize) -> Answer {
    match serde_json::to_string(value) {
        Ok(body) => text("application/json", body),
        Err(error) => fault(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn fault(status: StatusCode, what: &str) -> Answer {
    let mut answer = text("text/plain; charset=utf-8", format!("{what}\n"));
    *answer.status_mut() = status;
    answer
}

fn text(kind: &'static str, body: String) -> Answer {
    let mut answer = Response::new(Full::from(body));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
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
}
