//! Delivery of a message by mail.

use std::time::Duration;

use hostler_proto::notify::Message;
use lettre::message::Mailbox;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, CertificateStore, Tls, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use lettre::{Address, AsyncSmtpTransport, AsyncTransport, Tokio1Executor};

use super::address::resolve;
use super::fault::{Fault, Scope};
use super::file::{Mail, Security};
use super::text::text;

/// Sends a message. The caller limits the time, because the transport's timeout covers only the connection.
pub(super) async fn send(
    config: &Mail,
    address: Option<&str>,
    message: &Message,
    id: &str,
    cluster: &str,
    limit: Duration,
) -> Result<(), Fault> {
    let mail = compose(config, address, message, id, cluster)?;
    let server = resolve(&config.server, config.port(), config.allow_private).await?;
    let tls = match config.security {
        Security::None => Tls::None,
        Security::Starttls => Tls::Required(parameters(config)?),
        Security::Tls => Tls::Wrapper(parameters(config)?),
    };
    let own_name = crate::trust::hostname().unwrap_or_else(|| "localhost".to_owned());
    let mut transport = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(server.ip().to_string())
        .port(server.port())
        .tls(tls)
        .hello_name(ClientId::Domain(own_name))
        .timeout(Some(limit));
    if let (Some(user), Some(password)) = (&config.user, &config.password) {
        transport = transport.credentials(Credentials::new(user.clone(), password.0.clone()));
    }
    transport.build().send(mail).await.map(drop).map_err(|error| fault(&error))
}

fn compose(
    config: &Mail,
    address: Option<&str>,
    message: &Message,
    id: &str,
    cluster: &str,
) -> Result<lettre::Message, Fault> {
    let invalid = |what: &str| Fault::new(Scope::Permanent, format!("the message has an invalid {what}"));
    let to: Address = match (address, &config.to) {
        (Some(address), _) => address.parse().map_err(|_| invalid("address"))?,
        (None, Some(to)) => to.clone(),
        (None, None) => return Err(Fault::new(Scope::Permanent, "the destination needs a mail address")),
    };
    let text = text(message, cluster);
    let automatic = HeaderName::new_from_ascii_str("Auto-Submitted");
    let mail = lettre::Message::builder()
        .from(Mailbox::new(Some("Hostler".to_owned()), config.from.clone()))
        .to(Mailbox::new(None, to))
        .subject(text.title)
        .message_id(Some(format!("<{id}@{}>", config.from.domain())))
        .raw_header(HeaderValue::new(automatic, "auto-generated".to_owned()))
        .header(ContentType::TEXT_PLAIN);
    mail.body(format!("{}\n", text.body)).map_err(|_| invalid("header"))
}

fn parameters(config: &Mail) -> Result<TlsParameters, Fault> {
    let broken = |_| Fault::new(Scope::Destination, "the TLS settings of the destination are invalid");
    let mut parameters = TlsParameters::builder(config.server.clone());
    if let Some(path) = &config.ca {
        let unreadable = || Fault::new(Scope::Destination, "cannot read the file `ca` of the destination");
        let pem = std::fs::read(path).map_err(|_| unreadable())?;
        let authority = Certificate::from_pem(&pem).map_err(|_| unreadable())?;
        parameters = parameters.certificate_store(CertificateStore::None).add_root_certificate(authority);
    }
    parameters.build_rustls().map_err(broken)
}

fn fault(error: &lettre::transport::smtp::Error) -> Fault {
    let code = error.status().map(|code| code.to_string());
    match code {
        // 421: the server closes the connection. 45x concern one message.
        Some(code) if error.is_permanent() => {
            // The server refuses the login or the sender: that concerns every message.
            let scope = if ["530", "534", "535", "538"].contains(&code.as_str()) {
                Scope::Destination
            } else {
                Scope::Permanent
            };
            Fault::new(scope, format!("the mail server answered {code}"))
        }
        Some(code) => {
            let scope = if code == "421" { Scope::Destination } else { Scope::Message };
            Fault::new(scope, format!("the mail server answered {code}"))
        }
        None if error.is_tls() => Fault::new(Scope::Destination, "cannot open an encrypted connection to the receiver"),
        None => Fault::unreachable(),
    }
}

#[cfg(test)]
mod tests {
    use hostler_model::{JobOccasion, JobState};

    use super::super::file::{Config, NotifyFile};
    use super::super::text::tests::{job, message};
    use super::*;

    #[test]
    fn hostile_names_and_addresses_add_no_headers() {
        let text = "[destinations.x]\nkind = \"mail\"\nserver = \"x\"\nfrom = \"hostler@example.org\"";
        let file = NotifyFile::parse(text).expect("valid");
        let Some(Config::Mail(config)) = file.destinations.values().next() else { panic!("a mail destination") };
        let hostile = "x\r\nBcc: eve@example.org\r\n\r\n.\r\nMAIL FROM:<eve>";
        let message = message(vec![job(hostile, JobOccasion::End, JobState::Completed)]);
        let mail = compose(config, Some("ada@example.org"), &message, "m-1", "c").expect("valid");
        let mail = String::from_utf8(mail.formatted()).expect("text");
        let (headers, body) = mail.split_once("\r\n\r\n").expect("headers and a body");
        assert!(!headers.contains("\r\nBcc") && headers.contains("Message-ID: <m-1@example.org>"), "{headers}");
        assert!(!body.contains("\r\n.\r\n"), "{body}");
        let error = compose(config, Some("ada@example.org\r\nBcc: eve@example.org"), &message, "m-1", "c");
        assert_eq!(error.expect_err("a hostile address").scope, Scope::Permanent);
        assert!(compose(config, None, &message, "m-1", "c").is_err(), "no recipient");
    }
}
