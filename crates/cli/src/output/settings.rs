//! Text views of settings.

use hostler_proto::settings::{SettingSource, SettingView};

use super::table::{Align, Table};
use super::text::{Lines, Moment};

pub(crate) fn list(settings: &[SettingView], width: Option<usize>) -> String {
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("VALUE", Align::Left),
        ("UNIT", Align::Left),
        ("SOURCE", Align::Left),
        ("DEFAULT", Align::Left),
        ("MEANING", Align::Left),
    ]);
    for setting in settings {
        table.row([
            setting.name.clone(),
            setting.value.clone(),
            setting.unit.clone(),
            source(setting),
            setting.default.clone(),
            setting.meaning.clone(),
        ]);
    }
    table.render(width)
}

pub(crate) fn one(setting: &SettingView, moment: &Moment) -> String {
    let mut lines = Lines::default();
    lines.add("setting", &setting.name);
    lines.add("meaning", &setting.meaning);
    lines.add("value", &setting.value);
    let when = setting.set_at.map(|at| format!(", {}", moment.date(at))).unwrap_or_default();
    lines.add("source", format!("{}{when}", source(setting)));
    lines.add("default", &setting.default);
    lines.add("allowed", &setting.allowed);
    lines.text
}

/// Where the value comes from.
fn source(setting: &SettingView) -> String {
    match (setting.source, &setting.by) {
        (SettingSource::Default, _) => "default".to_owned(),
        (SettingSource::File, _) => "file".to_owned(),
        (SettingSource::Set, Some(by)) => format!("set by {by}"),
        (SettingSource::Set, None) => "set".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use hostler_model::WallTime;
    use jiff::tz::TimeZone;

    use super::*;

    fn setting() -> SettingView {
        SettingView {
            name: "retention".to_owned(),
            unit: "time".to_owned(),
            meaning: "how long ended jobs and their results are kept".to_owned(),
            allowed: "a time from 1m to 3650d".to_owned(),
            default: "14d".to_owned(),
            value: "36h".to_owned(),
            source: SettingSource::Set,
            by: Some("ada".to_owned()),
            set_at: Some(WallTime(1_800_000_000_000)),
        }
    }

    #[test]
    fn settings_are_shown_as_list_and_in_detail() {
        let expected = "\
NAME       VALUE  UNIT  SOURCE      DEFAULT  MEANING
retention  36h    time  set by ada  14d      how long ended jobs and their results are kept
";
        assert_eq!(list(&[setting()], None), expected);
        let expected = "\
setting    retention
meaning    how long ended jobs and their results are kept
value      36h
source     set by ada, 2027-01-15 08:00:00
default    14d
allowed    a time from 1m to 3650d
";
        let moment = Moment { now: WallTime(1_800_000_100_000), zone: TimeZone::UTC };
        assert_eq!(one(&setting(), &moment), expected);
    }
}
