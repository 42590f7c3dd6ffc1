//! The dashboard: pages about the cluster, rendered on the server.
//!
//! A page is a client of the public API. It sends requests to the API in the same process, on behalf of the caller, and
//! turns the answers into HTML. So the dashboard has the caller's rights and nothing more, and everything on a page is
//! available to every program. The pages work without scripts; [`assets`] has one script for live updates.
//!
//! | module | contents |
//! | --- | --- |
//! | [`api`] | requests to the API on behalf of the caller |
//! | [`page`] | what all pages have: the frame, and error pages |
//! | [`pages`] | one file per page |
//! | [`parts`] | states, times, bars and buttons, for all pages |
//! | [`held`] | what holds the CPUs of a node, as a bar |
//! | [`measured`] | what a node's agent measured last |
//! | [`preview`] | which files of results a page shows, and how |
//! | [`chart`] | charts of figures over time |
//! | [`url`] | addresses of pages, from parts that may contain anything |
//! | [`form`], [`job_form`] | fields of forms, and their tokens; fields that describe a job |
//! | [`folder`] | folders that browsers upload |
//! | [`words`], [`shell`] | states and amounts in words; command lines |
//! | [`ansi`] | output of jobs as HTML |
//! | [`live`] | tells browsers that something changed |
//! | [`recent`] | measurements of the last minutes, while somebody looks |
//! | [`notice`] | outcomes of actions, which the next page shows |
//! | [`assets`] | style sheet and scripts, under names that contain their hash |
//! | [`guard`] | the check of every request, and headers that restrict what a browser may do |
//! | [`session`] | cookies of browsers with a session, and which pages need one |
//! | [`sign_in`] | sign-in and sign-out of browsers |
//! | [`openid`] | sign-in with OpenID Connect |

mod ansi;
mod api;
mod assets;
mod chart;
mod cluster_map;
mod cookies;
mod folder;
mod form;
mod guard;
mod held;
mod job_filter;
mod job_form;
mod last_line;
mod live;
mod measured;
mod notice;
mod openid;
mod page;
mod pages;
mod parts;
mod preview;
mod recent;
mod session;
mod shell;
mod sign_in;
mod task_grid;
mod url;
mod words;

use std::sync::Arc;

use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use axum::{Extension, Router};

pub use self::api::{Caller, Way};
pub use self::session::cookie_name;

/// The dashboard's routes. `api` answers requests of the public API. Each request to the dashboard needs a [`Caller`]
/// among its extensions.
pub fn routes(api: Router) -> Router {
    let backend = api::Backend::new(api);
    Router::new()
        .route("/", get(pages::overview::show))
        .route("/seen", post(pages::overview::mark))
        .route("/jobs", get(pages::jobs::show))
        .route("/jobs.csv", get(pages::jobs::sheet))
        .route("/jobs/act", post(pages::jobs_act::act))
        .route("/jobs/{id}", get(pages::job::show))
        .route("/jobs/{id}/duplicate", get(pages::duplicate::show).post(pages::duplicate::submit))
        .route("/jobs/{id}/tasks/{index}/output/{output}", get(pages::output::show))
        .route("/jobs/{id}/tasks/{index}/output/{output}/more", get(pages::output::more))
        .route("/jobs/{id}/tasks/{index}/output/{output}/raw", get(pages::output::raw))
        .route("/jobs/{id}/tasks/{index}/terminal", get(pages::terminal::show))
        .route("/jobs/{id}/tasks/{index}/terminal/socket", get(pages::terminal::join))
        .route("/submit", get(pages::submit::show).post(pages::submit::submit))
        .route("/submit/missing", post(folder::missing))
        .route("/submit/chunks", post(folder::chunks))
        .route("/submit/folder", post(folder::finish))
        .route("/timeline", get(pages::timeline::show))
        .route("/live", get(live::stream))
        .route(session::SIGN_IN, get(sign_in::show).post(sign_in::sign_in))
        .route(session::SIGN_OUT, post(sign_in::sign_out))
        .route(session::OPENID_BEGIN, get(openid::begin))
        .route(session::OPENID_CALLBACK, get(openid::callback))
        // Browsers ask for an icon on their own.
        .route("/favicon.ico", get(StatusCode::NO_CONTENT))
        .route("/nodes", get(pages::nodes::show).post(pages::nodes::act))
        .route("/nodes/{name}", get(pages::node::show).post(pages::node::act))
        .route("/people", get(pages::people::list).post(pages::people::add))
        .route("/people/{name}", get(pages::people::show).post(pages::people::act))
        .route("/settings", get(pages::settings::show).post(pages::settings::act))
        .route("/audit", get(pages::audit::show))
        .route("/history", get(pages::history::show))
        .route("/jobs/{id}/tasks/{index}/files", get(pages::files::show))
        .route("/jobs/{id}/tasks/{index}/files/download", get(pages::files::download))
        .route("/jobs/{id}/tasks/{index}/files/image", get(pages::files::image))
        .route("/jobs/{id}/tasks/{index}/files/archive", get(pages::files_archive::download))
        .route("/jobs/{id}/tasks/{index}/usage", get(pages::usage::task))
        .route("/nodes/{name}/usage", get(pages::usage::node))
        .route("/assets/{name}", get(assets::serve))
        .fallback(page::no_such_page)
        .layer(from_fn_with_state(backend.clone(), page::show_errors))
        .layer(from_fn(guard::check))
        .layer(from_fn(live::time_pages))
        .layer(Extension(Arc::<live::Live>::default()))
        .layer(Extension(Arc::<recent::Recent>::default()))
        .layer(Extension(Arc::<last_line::LastLines>::default()))
        .with_state(backend)
}
