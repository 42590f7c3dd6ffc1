//! Parsers for the output of `ipmitool`. Unclear output is never interpreted as a state.

use crate::Supply;

/// An error reported by `ipmitool`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Complaint {
    /// Wrong user or password.
    Password,
    /// The user lacks a permission.
    Privilege,
    Busy,
    /// The controller does not support the cipher suite.
    Cipher,
    Unsupported,
    /// No session could be established; the reason is unknown.
    Silence,
    Other,
}

/// Parses the power state: exactly one complete line. Other lines are warnings.
pub(crate) fn power_state(said: &str) -> Option<Supply> {
    let mut states = said.lines().filter_map(|line| match line.trim_end() {
        "Chassis Power is on" => Some(Supply::On),
        "Chassis Power is off" => Some(Supply::Off),
        _ => None,
    });
    let state = states.next()?;
    states.next().is_none().then_some(state)
}

/// Parses a power reading in watts. `None` while the meter is not active.
pub(crate) fn watts(said: &str) -> Option<f64> {
    let field =
        |name: &str| said.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    if field("Power reading state is").is_some_and(|state| state != "activated") {
        return None;
    }
    let number = field("Instantaneous power reading")?.strip_suffix("Watts")?.trim_end();
    number.parse::<u32>().ok().map(f64::from)
}

/// Classifies the error output. With `-v`, which is needed to detect wrong passwords, the tool prints many irrelevant
/// errors. Only the last line and errors of the session setup count.
pub(super) fn complaint(said: &str) -> Complaint {
    const OF_THE_SESSION: [(&str, Complaint); 9] = [
        ("RAKP 2 HMAC is invalid", Complaint::Password),
        ("indicates an error : unauthorized name", Complaint::Password),
        ("indicates an error : invalid role", Complaint::Privilege),
        ("indicates an error : unauthorized role", Complaint::Privilege),
        ("indicates an error : insufficient resources", Complaint::Busy),
        ("is not what we requested", Complaint::Cipher),
        ("indicates an error : no matching cipher suite", Complaint::Cipher),
        ("indicates an error : invalid authentication algorithm", Complaint::Cipher),
        ("indicates an error : invalid integrity algorithm", Complaint::Cipher),
    ];
    const LAST: [(&str, Complaint); 7] = [
        ("Unable to establish", Complaint::Silence),
        ("Insufficient privilege", Complaint::Privilege),
        ("Node busy", Complaint::Busy),
        ("Out of space", Complaint::Busy),
        ("Timeout", Complaint::Busy),
        ("Invalid command", Complaint::Unsupported),
        ("ot supported", Complaint::Unsupported),
    ];
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let of_the_session = OF_THE_SESSION.iter().find(|(words, _)| said.contains(words));
    let found = of_the_session.or_else(|| LAST.iter().find(|(words, _)| last.contains(words)));
    found.map_or(Complaint::Other, |(_, complaint)| *complaint)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn state_must_be_a_complete_line() {
        for (said, expected) in [
            ("Chassis Power is on\n", Some(Supply::On)),
            ("Unable to Get Channel Cipher Suites\nChassis Power is off\n", Some(Supply::Off)),
            ("", None),
            ("Chassis Power is o", None),
            ("Chassis Power is on fire", None),
            ("Chassis Power is on\nChassis Power is off\n", None),
            ("Chassis Power Control: Up/On\n", None),
        ] {
            assert_eq!(power_state(said), expected, "{said}");
        }
    }

    #[test]
    fn reading_counts_only_while_the_meter_is_active() {
        let reading = "\n    Instantaneous power reading:                   220 Watts\n    Minimum during sampling \
            period:                 18 Watts\n    Power reading state is:                   activated\n\n";
        assert_eq!(watts(reading), Some(220.0));
        assert_eq!(watts(&reading.replace("activated", "deactivated")), None);
        assert_eq!(watts(&reading.replace("220", "-1")), None);
        assert_eq!(watts("DCMI request failed"), None);
    }

    #[test]
    fn errors_are_classified() {
        const NOISE: &str = "Loading IANA PEN Registry...\nGet HPM.x Capabilities request failed, compcode = d4\nInvalid completion \
            code received: Insufficient privilege level\nInvalid completion code received: Invalid command\n";
        for (said, expected) in [
            ("Error: Unable to establish IPMI v2 / RMCP+ session\n", Complaint::Silence),
            ("> RAKP 2 HMAC is invalid\nError: Unable to establish IPMI v2 / RMCP+ session", Complaint::Password),
            ("RAKP 2 message indicates an error : unauthorized name\nError: Unable to establish", Complaint::Password),
            (
                "Authentication algorithm 0x01 is not what we requested 0x03\n\nError: Unable to establish",
                Complaint::Cipher,
            ),
            ("Set Chassis Power Control to Up/On failed: Insufficient privilege level", Complaint::Privilege),
            ("Set Chassis Power Control to Soft failed: Node busy", Complaint::Busy),
            ("\n    DCMI request failed because: Invalid command (c1)\n", Complaint::Unsupported),
            (
                "Set Chassis Power Control to Soft failed: Command not supported in present state",
                Complaint::Unsupported,
            ),
            ("something else", Complaint::Other),
        ] {
            let said = &format!("{NOISE}{said}");
            assert_eq!(complaint(said), expected, "{said}");
        }
    }

    proptest! {
        #[test]
        fn any_output_is_handled(said in "(Chassis Power is (on|off)\n?|\\PC|\n){0,6}") {
            let lines = |state: &str| said.lines().filter(|line| line.trim_end() == format!("Chassis Power is {state}")).count();
            let (on, off) = (lines("on"), lines("off"));
            let expected = match (on, off) {
                (1, 0) => Some(Supply::On),
                (0, 1) => Some(Supply::Off),
                _ => None,
            };
            prop_assert_eq!(power_state(&said), expected);
            let _ = (watts(&said), complaint(&said));
        }
    }
}
