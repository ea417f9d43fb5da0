//! Answers to requests.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Response, StatusCode, Uri};
use serde::Serialize;
use vrnic_abi::admin::fields::Record;
use vrnic_adapter::inspect::Page;

use super::{Watched, json, metrics, resource_view, view};
use crate::hosted::adapter::Adapter;

/// Maximum number of objects in an answer.
const PAGE: usize = 1000;

type Answer = Response<Full<Bytes>>;

/// Returns the answer to a request.
pub(super) fn answer(watched: &Watched, method: &Method, uri: &Uri) -> Answer {
    if *method != Method::GET {
        let mut answer = fault(StatusCode::METHOD_NOT_ALLOWED, "only GET requests are answered");
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        return answer;
    }
    let parts: Vec<_> = uri.path().split('/').skip(1).collect();
    match parts.as_slice() {
        ["metrics"] => text(metrics::CONTENT_TYPE, metrics::metrics(watched)),
        ["functions"] => {
            let adapters = watched.adapters.all();
            let views = adapters.iter().map(|hosted| view::of(hosted.adapter()));
            json(&views.collect::<Vec<_>>())
        }
        ["resources"] => json(&resource_view::all(&watched.resources, &watched.adapters)),
        ["ports"] => json(&watched.switch.ports()),
        ["functions", name, kind] => {
            let adapters = watched.adapters.all();
            let named = adapters.iter().find(|hosted| hosted.adapter().name() == *name);
            match (named, range(uri.query().unwrap_or_default())) {
                (None, _) => {
                    fault(StatusCode::NOT_FOUND, &format!("there is no function '{name}'"))
                }
                (_, Err(wrong)) => fault(StatusCode::BAD_REQUEST, &wrong),
                (Some(hosted), Ok((from, limit))) => objects(hosted.adapter(), kind, from, limit),
            }
        }
        _ => fault(
            StatusCode::NOT_FOUND,
            "the paths are /metrics, /ports, /resources, /functions and /functions/NAME/KIND",
        ),
    }
}

/// Returns at most `limit` objects of one kind, from the number `from` on.
fn objects(adapter: &Adapter, kind: &str, from: u32, limit: usize) -> Answer {
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
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use vrnic_adapter::limits::Limits;

    use super::*;
    use crate::faults::Faults;
    use crate::net::thread::SwitchThread;
    use crate::resources::table::ResourceTable;

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
        let switch = SwitchThread::start(Box::new(|_| ())).expect("a switch");
        let faults = Arc::new(Faults::new(&Arc::default(), &Arc::default()));
        let (adapters, switch) = (Arc::default(), switch.handle().clone());
        let resources = ResourceTable::new(1, Limits::default(), BTreeMap::new());
        let resources = Arc::new(Mutex::new(resources));
        let watched = Watched { adapters, resources, switch, faults };
        let status =
            |method, uri| answer(&watched, &method, &Uri::from_static(uri)).status().as_u16();
        assert_eq!(status(Method::GET, "/ports"), 200);
        assert_eq!(status(Method::GET, "/metrics"), 200);
        assert_eq!(status(Method::GET, "/functions"), 200);
        assert_eq!(status(Method::GET, "/resources"), 200);
        assert_eq!(status(Method::GET, "/functions/a/qps"), 404);
        assert_eq!(status(Method::GET, "/"), 404);
        assert_eq!(status(Method::POST, "/metrics"), 405);
    }
}
