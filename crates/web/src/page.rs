//! What all pages have: the frame around the content, questions before actions, and error pages.

use std::borrow::Borrow;
use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use hostler_model::{Role, WallTime};
use hostler_proto::api::Info;
use hostler_proto::users::Me;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::api::{Api, Backend, Refused};
use crate::assets::{SCRIPT, STYLE, icon};
use crate::form::{Fields, FormToken};
use crate::notice::Notice;
use crate::parts::{Shape, Time, Tone};
use crate::url::Url;

/// An entry of the menu.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) path: &'static str,
    pub(crate) label: &'static str,
    audience: Audience,
}

/// Who sees an entry of the menu.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Audience {
    /// Everyone, also visitors without sign-in if the dashboard is public.
    Visitors,
    Users,
    Operators,
    Admins,
}

const MENU: [Entry; 8] = [
    Entry { path: "/", label: "Overview", audience: Audience::Visitors },
    Entry { path: "/jobs", label: "Jobs", audience: Audience::Visitors },
    Entry { path: "/submit", label: "Submit", audience: Audience::Users },
    Entry { path: "/nodes", label: "Nodes", audience: Audience::Visitors },
    Entry { path: "/history", label: "History", audience: Audience::Users },
    Entry { path: "/audit", label: "Events", audience: Audience::Admins },
    Entry { path: "/people", label: "People", audience: Audience::Operators },
    Entry { path: "/settings", label: "Settings", audience: Audience::Operators },
];

/// Name of the query parameter with the number of a [`Notice`].
const DONE: &str = "done";

/// The frame of a page: who looks at it, where, and when.
#[derive(Clone)]
pub(crate) struct Frame {
    pub(crate) api: Api,
    /// The caller, as the API identifies them.
    pub(crate) me: Me,
    /// Name of the head's machine, by which people tell clusters apart.
    pub(crate) cluster: Arc<str>,
    /// What the icons of pages about the whole cluster say: that nodes are lost, that tasks run, or neither.
    pub(crate) tone: Tone,
    /// Path of the page, which marks the current entry of the menu.
    pub(crate) path: String,
    /// Parameters in the page's address.
    pub(crate) query: Fields,
    /// Address of the page with its query, to return to after an action.
    pub(crate) here: Url,
    /// When the page was made.
    pub(crate) now: Timestamp,
    /// Time zone in which pages show times: that of the head's machine.
    pub(crate) zone: TimeZone,
    /// Outcome of the action that led to the page.
    pub(crate) notice: Option<Arc<Notice>>,
    token: FormToken,
}

impl Frame {
    /// Path of the style sheet.
    pub(crate) fn style(&self) -> &str {
        &STYLE.path
    }

    /// Path of the script.
    pub(crate) fn script(&self) -> &str {
        &SCRIPT.path
    }

    /// Path of the icon.
    pub(crate) fn icon(&self) -> &'static str {
        icon(self.tone)
    }

    /// The entries of the menu that the caller may use.
    pub(crate) fn menu(&self) -> impl Iterator<Item = &'static Entry> {
        let is_operator = self.is_operator();
        let is_user = self.me.identified;
        let is_admin = self.me.role == Role::Admin;
        MENU.iter().filter(move |entry| match entry.audience {
            Audience::Visitors => true,
            Audience::Users => is_user,
            Audience::Operators => is_operator,
            Audience::Admins => is_admin,
        })
    }

    /// Whether the page belongs to this entry of the menu.
    pub(crate) fn is_in(&self, entry: &Entry) -> bool {
        let rest = self.path.strip_prefix(entry.path);
        rest.is_some_and(|rest| rest.is_empty() || (entry.path != "/" && rest.starts_with('/')))
    }

    /// Whether the caller may manage jobs and nodes of others.
    pub(crate) fn is_operator(&self) -> bool {
        matches!(self.me.role, Role::Operator | Role::Admin)
    }

    /// The token that every form sends in the field `token`.
    pub(crate) fn token(&self) -> &str {
        self.token.as_str()
    }

    /// Whether the caller can sign out.
    pub(crate) fn has_session(&self) -> bool {
        self.api.has_session()
    }

    /// Whether the caller can sign in.
    pub(crate) fn can_sign_in(&self) -> bool {
        self.api.can_sign_in()
    }

    /// When the page was made.
    pub(crate) fn wall(&self) -> WallTime {
        WallTime(self.now.as_millisecond())
    }

    /// A time with date and zone.
    pub(crate) fn full(&self, at: impl Borrow<WallTime>) -> Time {
        Time::new(*at.borrow(), self.now, &self.zone, Shape::Full)
    }

    /// A time relative to now, such as `5m03s ago`.
    pub(crate) fn ago(&self, at: impl Borrow<WallTime>) -> Time {
        Time::new(*at.borrow(), self.now, &self.zone, Shape::Relative)
    }

    /// How long something has lasted that began at this time, such as `for 5m03s`.
    pub(crate) fn lasting(&self, since: impl Borrow<WallTime>) -> Time {
        Time::new(*since.borrow(), self.now, &self.zone, Shape::Duration)
    }

    /// Redirects to a page that shows the outcome of an action.
    pub(crate) fn redirect(&self, to: &Url, notice: Notice) -> Response {
        let number = self.api.notices().keep(&self.me.user, notice);
        let to = to.without(DONE).with(DONE, number);
        let location = HeaderValue::from_str(&to).expect("addresses contain only graphic ASCII characters");
        (StatusCode::SEE_OTHER, [(header::LOCATION, location)]).into_response()
    }
}

impl FromRequestParts<Backend> for Frame {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, backend: &Backend) -> Result<Self, Response> {
        let api = Api::from_request_parts(parts, backend).await.unwrap_or_else(|never| match never {});
        let token = Extension::<FormToken>::from_request_parts(parts, backend).await;
        let Extension(token) = token.map_err(IntoResponse::into_response)?;
        let me: Me = api.get("/me").await.map_err(IntoResponse::into_response)?;
        // Callers who may not see the cluster still get the pages that say so.
        let info: Option<Info> = api.get("/info").await.ok();
        let machine = info.as_ref().and_then(|info| info.head.machine.as_ref());
        let cluster = machine.map_or("Hostler", |machine| machine.name.as_str()).into();
        let tone = info.as_ref().map_or(Tone::Muted, tone_of);
        let query = Fields::parse(parts.uri.query().unwrap_or_default().as_bytes());
        let notice = query.read(DONE).ok().flatten().and_then(|number| api.notices().find(&me.user, number));
        let here = parts.uri.path_and_query().map_or("/", |here| here.as_str());
        let here = Url::local(here).unwrap_or_else(|| Url::local(parts.uri.path()).unwrap_or_else(|| Url::of([""])));
        let here = here.without(DONE);
        let path = parts.uri.path().to_owned();
        let (now, zone) = (Timestamp::now(), TimeZone::system());
        Ok(Self { api, me, cluster, tone, path, query, here, now, zone, notice, token })
    }
}

/// The tone of the whole cluster.
fn tone_of(info: &Info) -> Tone {
    if info.nodes.suspect + info.nodes.down > 0 || info.head.refusing.is_some() {
        Tone::Bad
    } else if info.tasks.running > 0 {
        Tone::Active
    } else {
        Tone::Muted
    }
}

/// Asks before an action that destroys something. The second form repeats the fields of the first and adds
/// `confirmed=yes`.
#[derive(Template)]
#[template(path = "confirm.html")]
pub(crate) struct Confirm {
    pub(crate) frame: Frame,
    /// The question.
    pub(crate) title: String,
    /// What the action concerns, one line each.
    pub(crate) items: Vec<String>,
    /// Address of the action.
    pub(crate) url: Url,
    /// Fields of the form, without `token` and `confirmed`.
    pub(crate) fields: Vec<(String, String)>,
    /// Label of the button that acts.
    pub(crate) button: String,
    /// Where "no" leads.
    pub(crate) back: Url,
}

/// A page with the reason why there is no other page.
#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage<'a> {
    frame: Frame,
    message: &'a str,
    hints: &'a [String],
}

/// Like [`ErrorPage`], if the caller is unknown.
#[derive(Template)]
#[template(path = "error-plain.html")]
struct PlainErrorPage<'a> {
    style: &'a str,
    message: &'a str,
    hints: &'a [String],
}

/// Marks a response that [`show_errors`] replaces with an error page.
#[derive(Debug, Clone)]
struct Failure(Arc<Refused>);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(Failure(Arc::new(self)));
        response
    }
}

/// Puts errors into a page with the frame, or into a plain page if the caller is unknown.
pub(crate) async fn show_errors(State(backend): State<Backend>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let response = next.run(Request::from_parts(parts.clone(), body)).await;
    let refused = response.extensions().get::<Failure>().map(|failure| Arc::clone(&failure.0));
    let Some(refused) = refused.or_else(|| refused_by_router(&response).map(Arc::new)) else { return response };
    let Refused { status, error } = &*refused;
    let (message, hints) = (error.message.as_str(), error.hints.as_slice());
    let html = match Frame::from_request_parts(&mut parts, &backend).await {
        Ok(frame) => render(&ErrorPage { frame, message, hints }),
        Err(_) => render(&PlainErrorPage { style: &STYLE.path, message, hints }),
    };
    (*status, html).into_response()
}

/// What is wrong with a request that did not reach a page: the router answers in plain text.
fn refused_by_router(response: &Response) -> Option<Refused> {
    let is_text =
        response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/plain"));
    let message = match response.status() {
        StatusCode::BAD_REQUEST if is_text => "a name or number in this address is not valid",
        StatusCode::METHOD_NOT_ALLOWED => "this address does not accept this kind of request",
        _ => return None,
    };
    Some(Refused::new(response.status(), "bad_request", message))
}

/// The HTML of a page.
pub(crate) fn render(page: &impl Template) -> Html<String> {
    Html(page.render().expect("templates write to memory"))
}

/// The answer to a path without a page.
pub(crate) async fn no_such_page() -> Refused {
    Refused::new(StatusCode::NOT_FOUND, "no_such_page", "there is no page at this address")
}

/// An answer without markup.
pub(crate) fn plain(status: StatusCode, text: &str) -> Response {
    (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], format!("{text}\n")).into_response()
}
