//! Reads rosters: CSV files of users with the columns name, uid, role, groups and ssh key.

use std::collections::{BTreeMap, BTreeSet};

use csv::{ReaderBuilder, StringRecord, Trim};
use hostler_model::{TYPOGRAPHIC_QUOTES, UserName};
use hostler_proto::users::AddUser;

/// The columns, in their order in a file without column names.
const COLUMNS: [&str; 5] = ["name", "uid", "role", "groups", "ssh key"];

/// What separates columns. Spreadsheets choose by the language of the system.
const SEPARATORS: [u8; 3] = [b',', b';', b'\t'];

/// Parses a roster, which begins with column names unless `is_bare`. Returns the users with their line numbers, and
/// the problems, each with its line.
pub(super) fn read(text: &str, is_bare: bool) -> (Vec<(usize, AddUser)>, Vec<String>) {
    let text = text.trim_start_matches('\u{feff}');
    let mut users = Vec::new();
    let mut problems = Vec::new();
    let mut seen: BTreeMap<UserName, usize> = BTreeMap::new();
    let mut columns: Vec<usize> = (0..COLUMNS.len()).collect();
    let rows = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(Trim::All)
        .comment(Some(b'#'))
        .delimiter(separator(text))
        .from_reader(text.as_bytes());
    let rows = rows.into_records().map(|row| row.expect("text in memory is read, and is UTF-8"));
    for (at, row) in rows.filter(|row| !row.iter().all(str::is_empty)).enumerate() {
        let line = line_of(&row, text);
        if at == 0 && row.iter().any(|field| column(field).is_some()) {
            match heading(&row) {
                Ok(found) => columns = found,
                Err(why) => return (Vec::new(), vec![format!("line {line}: {why}")]),
            }
            continue;
        }
        if at == 0 && !is_bare {
            // Its words would become users, with accounts on all nodes.
            let why = format!(
                "no column is called name; the columns of a roster are {}; a list of users alone needs --no-header",
                COLUMNS.join(", ")
            );
            return (Vec::new(), vec![format!("line {line}: {why}")]);
        }
        match user(&row, &columns) {
            Ok(user) => match seen.insert(user.name.clone(), line) {
                Some(earlier) => problems.push(format!("line {line}: {} is already in line {earlier}", user.name)),
                None => users.push((line, user)),
            },
            Err(why) => problems.push(format!("line {line}: {why}")),
        }
    }
    if users.is_empty() && problems.is_empty() {
        problems.push("the file contains no user".to_owned());
    }
    (users, problems)
}

/// What separates the columns: the separator of which the first line with text has most outside of quotes.
fn separator(text: &str) -> u8 {
    let first = text.lines().find(|line| !line.trim().is_empty() && !line.starts_with('#')).unwrap_or_default();
    let unquoted: Vec<u8> = first.split('"').step_by(2).flat_map(str::bytes).collect();
    let count = |separator: u8| unquoted.iter().filter(|byte| **byte == separator).count();
    // The last of equal ones; a line without any separator has one column.
    SEPARATORS.into_iter().rev().max_by_key(|separator| count(*separator)).unwrap_or(b',')
}

/// The column with this heading.
fn column(heading: &str) -> Option<usize> {
    let heading = heading.to_lowercase().replace(['_', '-'], " ");
    let name = match heading.as_str() {
        "user" | "username" | "user name" | "login" => "name",
        "group" => "groups",
        "key" | "sshkey" | "ssh keys" | "public key" => "ssh key",
        other => other,
    };
    COLUMNS.into_iter().position(|column| column == name)
}

/// Which column of [`COLUMNS`] each column of the file is.
fn heading(row: &StringRecord) -> Result<Vec<usize>, String> {
    let mut columns = Vec::new();
    for field in row {
        let column = column(field)
            .ok_or_else(|| format!("`{field}` is not a column of a roster; its columns are {}", COLUMNS.join(", ")))?;
        if columns.contains(&column) {
            return Err(format!("the column {} is there twice", COLUMNS[column]));
        }
        columns.push(column);
    }
    if columns.contains(&0) { Ok(columns) } else { Err("the column name is missing".to_owned()) }
}

/// Returns the number of a row's first line. The CSV reader reports the position of the blank lines and comments before
/// the row, so this function skips them.
fn line_of(row: &StringRecord, text: &str) -> usize {
    let position = row.position().expect("it was read from a text");
    let before = &text[position.byte() as usize..];
    let skipped = before.lines().take_while(|line| line.is_empty() || line.starts_with('#')).count();
    position.line() as usize + skipped
}

fn user(fields: &StringRecord, columns: &[usize]) -> Result<AddUser, String> {
    if fields.len() > columns.len() {
        let names: Vec<&str> = columns.iter().map(|column| COLUMNS[*column]).collect();
        return Err(format!("{} columns instead of at most {}: {}", fields.len(), names.len(), names.join(", ")));
    }
    if fields.iter().any(|field| field.contains('\n')) {
        return Err("a quote is not closed".to_owned());
    }
    if let Some(field) = fields.iter().find(|field| field.contains(TYPOGRAPHIC_QUOTES)) {
        return Err(format!("`{field}` has a typographic quote; write the name without quotes"));
    }
    let field = |column: usize| {
        let at = columns.iter().position(|other| *other == column)?;
        fields.get(at).filter(|field| !field.is_empty())
    };
    let name = field(0).ok_or("the name is missing")?.parse().map_err(|error| format!("{error}"))?;
    let uid = field(1).map(|uid| uid.parse::<u32>().ok().filter(|uid| *uid >= 1000).ok_or(uid)).transpose();
    let uid = uid.map_err(|uid| format!("`{uid}` is not a uid of 1000 or more"))?;
    let role = field(2).map(str::parse).transpose().map_err(|error| format!("{error}"))?.unwrap_or_default();
    let groups = field(3).unwrap_or_default().split([';', ',']).map(str::trim).filter(|group| !group.is_empty());
    let groups: Result<BTreeSet<UserName>, _> = groups.map(str::parse).collect();
    let groups = groups.map_err(|error| format!("group {error}"))?;
    Ok(AddUser { name, uid, role, groups, keys: field(4).map(str::to_owned).into_iter().collect() })
}

#[cfg(test)]
mod tests {
    use hostler_model::Role;

    use super::*;

    fn of(text: &str) -> Vec<AddUser> {
        let (users, problems) = read(text, false);
        assert_eq!(problems, Vec::<String>::new(), "{text}");
        users.into_iter().map(|(_, user)| user).collect()
    }

    #[test]
    fn file_without_column_names_is_taken_only_on_request() {
        for text in
            ["student\nada\n", "Benutzer;;;Gruppe;\nada;;;lab;\n", "First name,Surname\nAda,King\n", "ada\nben\n"]
        {
            let (users, problems) = read(text, false);
            assert!(users.is_empty() && problems[0].starts_with("line 1: no column is called name"), "{problems:?}");
        }
        let (users, problems) = read("ada\nben,2001\n", true);
        assert_eq!((users.len(), problems.len(), users[1].1.uid), (2, 0, Some(2001)));
        assert_eq!(read("user\nada\n", true).0.len(), 1, "column names are recognised all the same");
    }

    #[test]
    fn spreadsheet_csv_is_parsed() {
        let text = "\u{feff}Name,uid,role,groups,ssh key\r\nada,2000,admin,lab;a1,\"ssh-ed25519 AAAA ada, at home\"\r\n\r\n# gone\nben\ncy,,,,\n";
        let users = of(text);
        assert_eq!(users.len(), 3);
        assert_eq!((users[0].uid, users[0].role, users[0].groups.len()), (Some(2000), Role::Admin, 2));
        assert_eq!(users[0].keys, ["ssh-ed25519 AAAA ada, at home"]);
        assert_eq!((users[1].name.as_str(), users[1].uid, users[2].keys.len()), ("ben", None, 0));
    }

    #[test]
    fn columns_are_found_by_heading_and_separator() {
        for text in [
            "name;uid;groups\nada;2000;\"lab;a1\"\nben;;\n",
            "Groups,Username,UID\nlab;a1,ada,2000\n,ben,\n",
            "name\tgroups\tuid\nada\tlab, a1\t2000\nben\n",
            "# class of 2026\n\n\"name\";\"uid\";\"role\";\"group\"\n\"ada\";2000;;\"lab,a1\"\n\"ben\"\n",
        ] {
            let users = of(text);
            assert_eq!((users.len(), users[0].uid, users[0].groups.len()), (2, Some(2000), 2), "{text}");
            assert_eq!((users[0].name.as_str(), users[1].name.as_str()), ("ada", "ben"), "{text}");
        }
        for (text, problem) in [
            ("name,class\nada,1\n", "line 1: `class` is not a column of a roster"),
            ("uid,role\n2000,user\n", "line 1: the column name is missing"),
            ("name,uid,name\n", "line 1: the column name is there twice"),
        ] {
            let problems = read(text, false).1;
            assert!(problems.len() == 1 && problems[0].starts_with(problem), "{problems:?}");
        }
    }

    #[test]
    fn mistakes_are_reported_with_line_numbers() {
        let text = "name,uid\n.ada,2000\n\n# b\nben,12\r\ncy,,boss\r\ndan,,,-x\ned,,,,,\nflo\nflo\n,5\n ,,\ndan2,\"\nx";
        let problems = read(text, false).1;
        let lines: Vec<&str> = problems.iter().map(|problem| problem.split(':').next().expect("a line")).collect();
        assert_eq!(lines, ["line 2", "line 5", "line 6", "line 7", "line 8", "line 10", "line 11", "line 13"]);
        assert!(problems[5].contains("flo is already in line 9"), "{}", problems[5]);
        assert_eq!(read("name,uid\n", false).1, ["the file contains no user"]);
    }
}
