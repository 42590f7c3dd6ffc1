//! The JSON types of Redfish that the driver reads. All fields are optional, and other fields are ignored.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::lenient;
use crate::fault::quoted;
use crate::{Fault, Off, Supply};

/// A link to another resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "AnyLink")]
pub(crate) struct Link {
    pub(crate) path: String,
}

/// A link in the standard's format or as a bare path.
#[derive(Deserialize)]
#[serde(untagged)]
enum AnyLink {
    Path(String),
    Object {
        #[serde(rename = "@odata.id")]
        path: Option<String>,
    },
}

impl From<AnyLink> for Link {
    fn from(link: AnyLink) -> Self {
        match link {
            AnyLink::Path(path) => Self { path },
            AnyLink::Object { path } => Self { path: path.unwrap_or_default() },
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct Root {
    pub(crate) systems: Option<Link>,
    #[serde(deserialize_with = "lenient::object")]
    pub(crate) links: RootLinks,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct RootLinks {
    pub(crate) sessions: Option<Link>,
}

/// One page of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Collection {
    #[serde(rename = "Members", deserialize_with = "lenient::list")]
    pub(crate) members: Vec<Link>,
    #[serde(rename = "Members@odata.nextLink")]
    pub(crate) next: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct System {
    #[serde(rename = "Id", deserialize_with = "lenient::text")]
    pub(crate) id: Option<String>,
    #[serde(rename = "Name", deserialize_with = "lenient::text")]
    pub(crate) name: Option<String>,
    #[serde(rename = "UUID", deserialize_with = "lenient::text")]
    pub(crate) uuid: Option<String>,
    #[serde(rename = "PowerState")]
    pub(crate) power_state: Option<String>,
    #[serde(rename = "Actions", deserialize_with = "lenient::object")]
    pub(crate) actions: Actions,
    #[serde(rename = "Links", deserialize_with = "lenient::object")]
    pub(crate) links: SystemLinks,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Actions {
    #[serde(rename = "#ComputerSystem.Reset")]
    pub(crate) reset: Option<Reset>,
}

/// The action that switches a machine on or off.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Reset {
    pub(crate) target: String,
    #[serde(rename = "ResetType@Redfish.AllowableValues", deserialize_with = "lenient::optional_list")]
    pub(crate) allowable: Option<Vec<String>>,
    #[serde(rename = "@Redfish.ActionInfo")]
    pub(crate) info: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct SystemLinks {
    #[serde(deserialize_with = "lenient::list")]
    pub(crate) chassis: Vec<Link>,
}

/// Allowed parameters of an action, if the system itself does not list them.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct ActionInfo {
    #[serde(deserialize_with = "lenient::list")]
    parameters: Vec<Parameter>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Parameter {
    name: String,
    #[serde(deserialize_with = "lenient::list")]
    allowable_values: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct Chassis {
    pub(crate) power: Option<Link>,
    pub(crate) environment_metrics: Option<Link>,
    #[serde(deserialize_with = "lenient::object")]
    pub(crate) links: ChassisLinks,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct ChassisLinks {
    #[serde(deserialize_with = "lenient::list")]
    pub(crate) computer_systems: Vec<Link>,
}

/// Power draw of a chassis, in the current format.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct EnvironmentMetrics {
    power_watts: Option<Sensor>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Sensor {
    #[serde(deserialize_with = "lenient::number")]
    reading: Option<f64>,
}

/// Power draw of a chassis, in the older format.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct Power {
    #[serde(deserialize_with = "lenient::list")]
    power_control: Vec<PowerControl>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct PowerControl {
    #[serde(deserialize_with = "lenient::number")]
    power_consumed_watts: Option<f64>,
}

/// The body of an error response.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Refusal {
    #[serde(deserialize_with = "lenient::object")]
    error: RefusalBody,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RefusalBody {
    #[serde(deserialize_with = "lenient::text")]
    message: Option<String>,
    #[serde(rename = "@Message.ExtendedInfo", deserialize_with = "lenient::list")]
    info: Vec<Message>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Message {
    #[serde(rename = "Message", deserialize_with = "lenient::text")]
    message: Option<String>,
    #[serde(rename = "MessageId", alias = "MessageID", deserialize_with = "lenient::text")]
    id: Option<String>,
}

/// Parses a body.
///
/// # Errors
/// The problem, as the end of a sentence.
pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    serde_json::from_slice(body).map_err(|error| format!("is not valid Redfish data: {}", quoted(&error.to_string())))
}

impl System {
    /// The power state. A machine that is powering on or off counts as on.
    ///
    /// # Errors
    /// The state is missing or unknown. The text describes it.
    pub(crate) fn supply(&self) -> Result<Supply, String> {
        match self.power_state.as_deref() {
            Some("On" | "PoweringOn" | "PoweringOff" | "Paused") => Ok(Supply::On),
            Some("Off") => Ok(Supply::Off),
            Some(other) => Err(format!("\"{}\"", quoted(other))),
            None => Err("nothing".to_owned()),
        }
    }

    /// Whether `name` is the id, the name or the UUID of the system.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        let names = [&self.id, &self.name, &self.uuid];
        names.into_iter().flatten().any(|known| known.eq_ignore_ascii_case(name))
    }
}

impl ActionInfo {
    /// The reset types that the controller accepts.
    pub(crate) fn reset_types(self) -> Option<Vec<String>> {
        let parameter = self.parameters.into_iter().find(|parameter| parameter.name == "ResetType");
        parameter.map(|parameter| parameter.allowable_values)
    }
}

impl EnvironmentMetrics {
    pub(crate) fn watts(&self) -> Option<f64> {
        self.power_watts.as_ref()?.reading.filter(is_power)
    }
}

impl Power {
    /// Returns the first entry, which is the total of the chassis.
    pub(crate) fn watts(&self) -> Option<f64> {
        self.power_control.first()?.power_consumed_watts.filter(is_power)
    }
}

fn is_power(watts: &f64) -> bool {
    watts.is_finite() && *watts >= 0.0
}

impl Refusal {
    /// The controller's message for users.
    pub(crate) fn user_message(&self) -> Option<String> {
        let said = self.error.info.iter().find_map(|message| message.message.as_deref().or(message.id.as_deref()));
        said.or(self.error.message.as_deref()).map(quoted).filter(|words| !words.is_empty())
    }

    /// Whether one of the messages is of this kind.
    pub(crate) fn is(&self, kind: &str) -> bool {
        self.error.info.iter().any(|message| message.id.as_ref().is_some_and(|id| id.contains(kind)))
    }
}

/// Chooses a reset type that the controller supports. Without a list of supported types, uses the standard type.
///
/// A graceful shutdown is never forced. If the controller can only press the power button, pressing it makes the
/// operating system shut down. Pressing the button also switches on a machine that is off. The button is therefore the
/// last choice, and the caller has read the power state immediately before.
///
/// # Errors
/// The suitable types, none of which is supported.
pub(crate) fn choose(wanted: Wanted, allowable: Option<&[String]>) -> Result<&'static str, &'static [&'static str]> {
    let candidates: &[&str] = match wanted {
        Wanted::On => &["On", "ForceOn", "PushPowerButton"],
        Wanted::Off(Off::Gracefully) => &["GracefulShutdown", "PushPowerButton"],
        Wanted::Off(Off::ByForce) => &["ForceOff"],
    };
    match allowable {
        None => Ok(candidates[0]),
        Some(allowable) => {
            candidates.iter().copied().find(|it| allowable.iter().any(|known| known == it)).ok_or(candidates)
        }
    }
}

/// The intended result of a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    On,
    Off(Off),
}

impl Wanted {
    pub(crate) const fn supply(self) -> Supply {
        match self {
            Self::On => Supply::On,
            Self::Off(_) => Supply::Off,
        }
    }
}

/// Finds a member by its path or by the last component of its path, without reading the members.
pub(crate) fn by_path<'a>(members: &'a [Link], name: &str) -> Option<&'a Link> {
    let trimmed = name.trim_end_matches('/');
    members.iter().find(|member| {
        let path = member.path.trim_end_matches('/');
        path == trimmed || path.rsplit('/').next().is_some_and(|last| last.eq_ignore_ascii_case(trimmed))
    })
}

/// Returns a link's path, or a fault if the link is missing.
///
/// # Errors
/// A fault that names the missing resource.
pub(crate) fn required<'a>(link: Option<&'a Link>, what: &str, address: &super::Address) -> Result<&'a str, Fault> {
    link.map(|link| link.path.as_str()).filter(|path| !path.is_empty()).ok_or_else(|| {
        Fault::confused(format!("the controller at {address} has no {what}"))
            .hint("check that the controller supports Redfish; iLO 4 does since firmware 2.30")
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn system(body: &serde_json::Value) -> System {
        read(body.to_string().as_bytes()).expect("the body is JSON of a system")
    }

    #[test]
    fn only_reported_states_count_as_known() {
        for (state, expected) in [
            (json!("On"), Some(Supply::On)),
            (json!("Off"), Some(Supply::Off)),
            (json!("PoweringOff"), Some(Supply::On)),
            (json!("PoweringOn"), Some(Supply::On)),
            (json!(null), None),
            (json!("off"), None),
            (json!("Unknown"), None),
            (json!(""), None),
        ] {
            assert_eq!(system(&json!({ "PowerState": state })).supply().ok(), expected, "{state}");
        }
        assert_eq!(system(&json!({})).supply(), Err("nothing".to_owned()));
        assert!(read::<System>(b"[]").is_err() || system(&json!({})).supply().is_err());
        assert!(read::<System>(br#"{"PowerState": 1}"#).is_err());
    }

    /// Reset types of iLO 4: no graceful shutdown, but a power button.
    const ILO_4: [&str; 5] = ["On", "ForceOff", "ForceRestart", "Nmi", "PushPowerButton"];

    #[test]
    fn reset_type_is_chosen_from_the_supported_ones() {
        let list = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
        let (gracefully, by_force) = (Wanted::Off(Off::Gracefully), Wanted::Off(Off::ByForce));
        let ilo = list(&ILO_4);
        assert_eq!(choose(Wanted::On, Some(&ilo)), Ok("On"));
        assert_eq!(choose(gracefully, Some(&ilo)), Ok("PushPowerButton"));
        assert_eq!(choose(by_force, Some(&ilo)), Ok("ForceOff"));
        let polite = list(&["GracefulRestart", "GracefulShutdown", "ForceOn"]);
        assert_eq!(choose(Wanted::On, Some(&polite)), Ok("ForceOn"));
        assert_eq!(choose(gracefully, Some(&polite)), Ok("GracefulShutdown"));
        assert!(choose(by_force, Some(&polite)).is_err());
        assert!(choose(gracefully, Some(&list(&["ForceOff", "PowerCycle", "ForceRestart"]))).is_err());
        assert_eq!(choose(gracefully, None), Ok("GracefulShutdown"));
    }

    #[test]
    fn all_known_error_formats_are_parsed() {
        let many = json!({ "error": { "code": "x", "message": "See ExtendedInfo.",
            "@Message.ExtendedInfo": [{ "MessageId": "Base.1.0.SessionLimitExceeded", "Message": "Too many." }] } });
        let refusal: Refusal = read(many.to_string().as_bytes()).expect("the standard's format");
        assert_eq!(refusal.user_message().as_deref(), Some("Too many"));
        assert!(refusal.is("SessionLimitExceeded") && !refusal.is("Other"));
        let ilo = json!({ "error": { "@Message.ExtendedInfo": [{ "MessageID": "iLO.0.10.InvalidOperationForSystemState" }] } });
        let refusal: Refusal = read(ilo.to_string().as_bytes()).expect("iLO 4's format");
        assert_eq!(refusal.user_message().as_deref(), Some("iLO.0.10.InvalidOperationForSystemState"));
        let one = json!({ "error": { "@Message.ExtendedInfo": { "Message": "no" } } });
        assert_eq!(
            read::<Refusal>(one.to_string().as_bytes()).expect("sushy's format").user_message().as_deref(),
            Some("no")
        );
    }

    #[test]
    fn values_of_other_json_types_are_read() {
        fn of<T: DeserializeOwned>(body: &serde_json::Value) -> T {
            read(body.to_string().as_bytes()).unwrap_or_else(|why| panic!("{body} {why}"))
        }
        for watts in [json!(87.5), json!("87.5"), json!(" 87.5 W"), json!("87.50 Watts")] {
            let power = json!({ "PowerConsumedWatts": watts });
            for list in [json!([power]), power] {
                assert_eq!(of::<Power>(&json!({ "PowerControl": list })).watts(), Some(87.5), "{list}");
            }
            let metrics: EnvironmentMetrics = of(&json!({ "PowerWatts": { "Reading": watts } }));
            assert_eq!(metrics.watts(), Some(87.5));
        }
        for watts in [json!("N/A"), json!(""), json!("nan"), json!(null), json!(true), json!([]), json!("-3")] {
            let power = json!({ "PowerControl": [{ "PowerConsumedWatts": watts }] });
            assert_eq!(of::<Power>(&power).watts(), None, "{watts}");
        }
        let link = json!({ "@odata.id": "/x" });
        for list in [json!([link]), link, json!("/x"), json!(["/x"])] {
            assert_eq!(of::<Collection>(&json!({ "Members": list })).members, [Link { path: "/x".into() }]);
            let system: System = of(&json!({ "Links": { "Chassis": list } }));
            assert_eq!(system.links.chassis.len(), 1, "{list}");
        }
        let nulls: System = of(&json!({ "Links": null, "Actions": null, "Id": 7, "Name": {}, "PowerState": "On" }));
        assert!(nulls.is_called("7") && nulls.supply() == Ok(Supply::On));
        assert_eq!(of::<Collection>(&json!({ "Members": null })).members, []);
        let reset: Reset = of(&json!({ "ResetType@Redfish.AllowableValues": "On" }));
        assert_eq!(reset.allowable, Some(vec!["On".to_owned()]));
        let marked = b"\xef\xbb\xbf{\"PowerState\":\"Off\"}";
        assert_eq!(read::<System>(marked).expect("a byte order mark").supply(), Ok(Supply::Off));
        // A list with an unreadable member is not a shorter list.
        assert!(read::<Collection>(br#"{ "Members": [{ "@odata.id": "/x" }, 7] }"#).is_err());
    }

    #[test]
    fn systems_are_found_by_path() {
        let members =
            ["/redfish/v1/Systems/1/", "/redfish/v1/Systems/System.Embedded.1"].map(|path| Link { path: path.into() });
        assert_eq!(by_path(&members, "1"), members.first());
        assert_eq!(by_path(&members, "/redfish/v1/Systems/1"), members.first());
        assert_eq!(by_path(&members, "system.embedded.1"), members.last());
        assert_eq!(by_path(&members, "2"), None);
    }

    proptest! {
        #[test]
        fn choice_is_supported_and_not_stronger_than_requested(
            allowable in proptest::collection::vec(
                proptest::sample::select(vec!["On", "ForceOn", "ForceOff", "GracefulShutdown", "PushPowerButton", "Nmi",
                    "PowerCycle", "ForceRestart", "GracefulRestart"]), 0..9),
        ) {
            let allowable: Vec<String> = allowable.into_iter().map(str::to_owned).collect();
            for wanted in [Wanted::On, Wanted::Off(Off::Gracefully), Wanted::Off(Off::ByForce)] {
                let Ok(chosen) = choose(wanted, Some(&allowable)) else { continue };
                prop_assert!(allowable.iter().any(|known| known == chosen));
                prop_assert!(!chosen.contains("Restart") && !chosen.contains("Cycle"));
                prop_assert_eq!(chosen == "ForceOff", wanted == Wanted::Off(Off::ByForce));
            }
        }

        #[test]
        fn any_body_is_handled(body in "\\PC*|[{}\\[\\]\",:a0 ]{0,40}") {
            let _ = read::<System>(body.as_bytes()).map(|system| system.supply());
            let _ = read::<Refusal>(body.as_bytes()).map(|refusal| refusal.user_message());
            let _ = read::<ActionInfo>(body.as_bytes()).map(ActionInfo::reset_types);
        }
    }
}
