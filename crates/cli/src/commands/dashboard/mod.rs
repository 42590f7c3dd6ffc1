//! `hostler dashboard`: opens the dashboard in a browser.
//!
//! The head identifies users by a socket or a token. A browser has neither. So this command relays: the browser connects
//! to a port of this machine, and the [`relay`] passes its requests to the head on behalf of the user.
//!
//! Other users of this machine and pages of other sites reach that port as well. The [`session`] therefore starts with a
//! one-time secret, and the relay checks the name and the origin of every request, and refuses programs of other
//! users. The secret reaches the [`browser`](crate::browser) in a private file, because process lists and logs are public.

mod relay;
mod session;

use std::sync::Arc;

use clap::Args;
use futures_util::future::OptionFuture;
use serde_json::json;

use self::relay::Relay;
use self::session::{LINK_TTL, Session};
use crate::browser::Browser;
use crate::config;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::interrupts::Interrupts;

/// Open the dashboard of the cluster in a browser
///
/// The command relays between your browser and the head, with your rights, until you press Ctrl-C. Only you can use the
/// address that it opens. The browser is that in BROWSER, or else the default one. Without a display, the command prints
/// a link.
#[derive(Debug, Args)]
pub struct Dashboard {
    /// Print a link instead of opening a browser, e.g. over ssh
    ///
    /// The link works once, for 60 seconds. For a browser on another machine, forward the port:
    /// ssh -L PORT:127.0.0.1:PORT HOST
    #[arg(long)]
    no_open: bool,

    /// Port of the relay on this machine [default: any free port]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,

    /// Print a link that signs you in to the dashboard of your site, and exit
    ///
    /// The link works once, for 60 seconds, in any browser that reaches the site.
    #[arg(long, conflicts_with_all = ["no_open", "port"])]
    link: bool,
}

impl Dashboard {
    pub fn run(self, context: &Context) -> Outcome {
        if self.link {
            return print_link(context);
        }
        block_on(self.relay(context))
    }

    async fn relay(self, context: &Context) -> Outcome {
        let mut interrupts = Interrupts::take()?;
        let endpoint = config::endpoint(context.head.as_deref())?;
        // Reports a head that is away, and a login that has ended, before a browser opens.
        context.client()?.info().await?;
        let listeners = relay::listen(self.port).await.during(|| match self.port {
            0 => "cannot listen on a port of this machine".to_owned(),
            port => format!("cannot listen on port {port} of this machine"),
        })?;
        let port = listeners.port();
        let session = Arc::new(Session::new(port));
        let browser = if self.no_open { None } else { Browser::find() };
        let output = &context.output;
        let address = session.address();
        let mut opened = match &browser {
            Some(browser) => {
                output.say(&format!("the dashboard is at {address}, for you on this machine"));
                Some(browser.open(&session.link(), "`hostler dashboard --no-open` prints a link instead")?)
            }
            None => {
                self.print(context, &session);
                None
            }
        };
        output.say("press Ctrl-C to stop");
        if output.is_json() {
            let link = browser.is_none().then(|| session.link());
            output.json(&json!({ "address": address, "link": link }));
        }
        let relay = Relay::new(endpoint, Arc::clone(&session));
        let failure = async {
            let failed = opened.as_mut().map(|opened| &mut opened.failed);
            if let Some(Ok(why)) = OptionFuture::from(failed).await {
                output.say(&why);
                self.print(context, &session);
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = relay.serve(listeners) => {}
            () = failure => {}
            _ = interrupts.next() => {}
        }
        drop(opened);
        output.say("stopped");
        Ok(exit::OK)
    }

    /// Prints the link for a person to open.
    fn print(&self, context: &Context, session: &Session) {
        let (output, port) = (&context.output, session.port());
        let seconds = LINK_TTL.as_secs();
        output.say(&format!("open this link within {seconds} seconds; it works once:"));
        if !output.is_json() {
            output.data(&session.link());
        }
        output.say(&format!("if the browser does not find it: {}", session.plain_link()));
        output.say(&format!("from another machine, run there first: ssh -L {port}:127.0.0.1:{port} HOST"));
    }
}

fn print_link(context: &Context) -> Outcome {
    let client = context.client()?;
    let link = block_on(async { Ok::<_, Failure>(client.login_link().await?) })?;
    if context.output.is_json() {
        context.output.json(&link);
    } else {
        context.output.say(&format!("open this link within {} seconds; it works once:", link.ends_in_ms / 1000));
        context.output.data(&link.url);
    }
    Ok(exit::OK)
}
