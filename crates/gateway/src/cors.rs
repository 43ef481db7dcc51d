//! What a browser has to be told before a page of an allowed origin may speak HTTP here and read the answers.
//! It allows nothing by itself: every request is judged behind it as if it were not there.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderName, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::Response,
};

use crate::{
    Gateway,
    http::{CONNECTION_ID, foreign},
};

/// How long a browser may remember the answer, in seconds: a changed list of origins counts for WebSockets at once, and
/// for these requests too, because they are judged whatever the browser remembers.
const REMEMBERED: HeaderValue = HeaderValue::from_static("600");

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");

const HEADERS: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, accept, acp-connection-id, acp-session-id, x-pairing-code, last-event-id",
);

pub(crate) async fn answer(State(gateway): State<Arc<Gateway>>, request: Request, next: Next) -> Response {
    let Some(origin) = request.headers().get(header::ORIGIN).cloned() else { return next.run(request).await };
    // Counted and refused by whoever is asked.
    if foreign(&gateway, &request, false).is_some() {
        return next.run(request).await;
    }
    let asks =
        request.method() == Method::OPTIONS && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if asks {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HEADERS);
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, REMEMBERED);
        response
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    // Some clients always ask for it. There is no cookie here that it could be about.
    headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed());
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    response
}

fn exposed() -> HeaderValue {
    let name: HeaderName = CONNECTION_ID;
    name.into()
}
