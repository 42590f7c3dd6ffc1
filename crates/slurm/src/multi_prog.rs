//! Files for `srun --multi-prog`: which program each task runs.

/// Why a file is not valid, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// A task has no program.
    Missing(usize),
    /// This line is not valid, for this reason.
    Line(usize, String),
}

/// Returns the command line of each task. `tasks`: the number of tasks.
///
/// # Errors
/// If a line is not valid, or a task has no program or several.
pub fn commands(text: &str, tasks: usize) -> Result<Vec<Vec<String>>, Wrong> {
    let mut all: Vec<Option<Vec<String>>> = vec![None; tasks];
    for (number, line) in logical_lines(text) {
        let wrong = |why| Wrong::Line(number, why);
        let words = crate::script::words(&line).map_err(|quote| wrong(format!("No closing {quote}")))?;
        let [ranks, command @ ..] = words.as_slice() else { continue };
        if command.is_empty() {
            return Err(wrong(format!("No program for tasks {ranks}")));
        }
        let ranks = match ranks.as_str() {
            // All tasks that no line before names.
            "*" => (0..tasks).filter(|rank| all[*rank].is_none()).collect(),
            list => ranks_of(list, tasks).ok_or_else(|| wrong(format!("Invalid task ids {list}")))?,
        };
        for (offset, rank) in ranks.into_iter().enumerate() {
            let task = all.get_mut(rank).ok_or_else(|| wrong(format!("Invalid task id, {rank} >= ntasks")))?;
            if task.is_some() {
                return Err(wrong(format!("Duplicate record for task {rank}")));
            }
            let fill = |word: &String| word.replace("%t", &rank.to_string()).replace("%o", &offset.to_string());
            *task = Some(command.iter().map(fill).collect());
        }
    }
    match all.iter().position(Option::is_none) {
        Some(rank) => Err(Wrong::Missing(rank)),
        None => Ok(all.into_iter().flatten().collect()),
    }
}

/// The lines that are not comments, with continued ones joined, and the number of the first of each.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut continues = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        let (line, goes_on) = line.strip_suffix('\\').map_or((line, false), |line| (line, true));
        match lines.last_mut().filter(|_| continues) {
            Some((_, before)) => before.push_str(line),
            None if line.is_empty() || line.starts_with('#') => continue,
            None => lines.push((number, line.to_owned())),
        }
        continues = goes_on;
    }
    lines
}

/// The ranks of `0`, `1-3` or `0,4-5`.
fn ranks_of(text: &str, tasks: usize) -> Option<Vec<usize>> {
    let mut ranks = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        ranks.extend(first..=last.min(first.saturating_add(tasks)));
    }
    Some(ranks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_task_has_its_program() {
        let text = "# tasks\n0 echo first %t\n1-2,3  echo \"two words\" \\\n  %t:%o\n";
        let all = commands(text, 4).expect("valid");
        assert_eq!(all[0], ["echo", "first", "0"]);
        assert_eq!(all[2], ["echo", "two words", "2:1"]);
        assert_eq!(all[3], ["echo", "two words", "3:2"]);
        assert_eq!(commands("* hostname", 2).expect("valid"), [["hostname"], ["hostname"]]);
        let rest = commands("1 echo one\n* echo rest %t %o", 3).expect("valid");
        assert_eq!(rest, [vec!["echo", "rest", "0", "0"], vec!["echo", "one"], vec!["echo", "rest", "2", "1"]]);
        assert_eq!(commands("0 a", 2), Err(Wrong::Missing(1)));
        for (text, line, why) in [
            ("0-1", 1, "No program for tasks 0-1"),
            ("x a", 1, "Invalid task ids x"),
            ("* a\n1 b", 2, "Duplicate record for task 1"),
            ("0 a\n1-2 b", 2, "Invalid task id, 2 >= ntasks"),
        ] {
            assert_eq!(commands(text, 2), Err(Wrong::Line(line, why.to_owned())));
        }
    }
}
