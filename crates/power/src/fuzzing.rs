//! Access to internals of this crate for fuzz targets. Not part of the product.

use crate::redfish::bodies::{
    self, ActionInfo, Chassis, Collection, EnvironmentMetrics, Power, Refusal, Root, System, Wanted,
};
use crate::{Address, Off, command, credentials, ipmi, slurm};

/// Parses bytes as each kind of response of a controller, and makes the decisions that depend on the response.
///
/// # Panics
/// A stronger action than requested is chosen, or a link to another server is followed.
pub fn redfish(bytes: &[u8]) {
    let address: Address = "ilo-r1".parse().expect("an address");
    let follow = |link: &str| {
        let path = address.path_of(link);
        assert!(path.is_none_or(|path| path.starts_with('/')), "{link}");
    };
    if let Ok(root) = bodies::read::<Root>(bytes) {
        [root.systems, root.links.sessions].iter().flatten().for_each(|link| follow(&link.path));
    }
    if let Ok(collection) = bodies::read::<Collection>(bytes) {
        collection.members.iter().for_each(|link| follow(&link.path));
        let _ = bodies::by_path(&collection.members, "1");
    }
    if let Ok(system) = bodies::read::<System>(bytes) {
        let _ = system.supply();
        let allowable = system.actions.reset.and_then(|reset| reset.allowable);
        for wanted in [Wanted::On, Wanted::Off(Off::Gracefully), Wanted::Off(Off::ByForce)] {
            let chosen = bodies::choose(wanted, allowable.as_deref());
            assert!(wanted == Wanted::Off(Off::ByForce) || chosen != Ok("ForceOff"), "{allowable:?}");
        }
    }
    let _ = bodies::read::<ActionInfo>(bytes).map(ActionInfo::reset_types);
    let _ = bodies::read::<Chassis>(bytes);
    let watts = [
        bodies::read::<EnvironmentMetrics>(bytes).ok().and_then(|metrics| metrics.watts()),
        bodies::read::<Power>(bytes).ok().and_then(|power| power.watts()),
        command::watts(bytes),
    ];
    assert!(watts.into_iter().flatten().all(|watts| watts.is_finite() && watts >= 0.0), "{watts:?}");
    if let Ok(refusal) = bodies::read::<Refusal>(bytes) {
        let words = refusal.user_message().unwrap_or_default();
        assert!(words.chars().count() <= 201 && !words.contains(char::is_control), "{words:?}");
    }
}

/// Parses bytes as the output of programs that talk to controllers.
pub fn printed(bytes: &[u8]) {
    let _ = command::supply(bytes);
    let text = String::from_utf8_lossy(bytes);
    let _ = (ipmi::power_state(&text), ipmi::watts(&text));
    let _ = (slurm::live_jobs(&text), slurm::submitted(&text));
    if let Ok(credentials) = credentials::parse(&text) {
        assert!(!credentials.user.is_empty() && !credentials.user.contains(':'));
    }
    for word in text.split_whitespace().take(16) {
        if let Ok(address) = word.parse::<Address>() {
            assert_eq!(address.to_string().parse(), Ok(address));
        }
    }
}

/// Returns valid examples of controllers' responses and of program output.
#[must_use]
pub fn honest() -> Vec<Vec<u8>> {
    let texts = [
        r##"{"@odata.id":"/redfish/v1/Systems/1/","Id":"1","Name":"r1","UUID":"x","PowerState":"On","Links":{"Chassis":[{"@odata.id":"/redfish/v1/Chassis/1/"}]},"Actions":{"#ComputerSystem.Reset":{"target":"/redfish/v1/Systems/1/Actions/ComputerSystem.Reset/","ResetType@Redfish.AllowableValues":["On","ForceOff","PushPowerButton"]}}}"##,
        r#"{"Systems":{"@odata.id":"/redfish/v1/Systems"},"Links":{"Sessions":{"@odata.id":"https://ilo-r1/redfish/v1/Sessions"}}}"#,
        r#"{"Members":[{"@odata.id":"/redfish/v1/Systems/1"}],"Members@odata.nextLink":"/redfish/v1/Systems?skip=1"}"#,
        r#"{"Parameters":[{"Name":"ResetType","AllowableValues":["On","GracefulShutdown"]}]}"#,
        r#"{"PowerControl":[{"PowerConsumedWatts":87}],"PowerWatts":{"Reading":87.5}}"#,
        r#"{"error":{"code":"x","message":"y","@Message.ExtendedInfo":[{"MessageId":"iLO.0.10.InPost","Message":"z"}]}}"#,
        "Chassis Power is on\n",
        "    Instantaneous power reading:   220 Watts\n    Power reading state is:  activated\n",
        "17|RUNNING\n16|CANCELLED\n",
        "admin:password\n",
        "http://[::1]:8000 ilo-r1:443 https://10.0.0.1/\n",
        "87.5\n",
        "off\n",
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}
