//! Files for `srun --multi-prog`: which program each task runs.

/// Returns the command line of each task. `tasks`: the number of tasks.
///
/// # Errors
/// If a line is not valid, or a task has no program; the text is for people.
pub fn commands(text: &str, tasks: usize) -> Result<Vec<Vec<String>>, String> {
    let mut all: Vec<Option<Vec<String>>> = vec![None; tasks];
    for (number, line) in logical_lines(text) {
        let words = crate::script::words(&line).map_err(|quote| format!("line {number}: no closing {quote}"))?;
        let [ranks, command @ ..] = words.as_slice() else { continue };
        if command.is_empty() {
            return Err(format!("line {number}: no program for tasks {ranks}"));
        }
        for (offset, rank) in
            ranks_of(ranks, tasks).ok_or_else(|| format!("line {number}: bad tasks {ranks}"))?.enumerate()
        {
            let Some(task) = all.get_mut(rank) else { continue };
            let fill = |word: &String| word.replace("%t", &rank.to_string()).replace("%o", &offset.to_string());
            *task = Some(command.iter().map(fill).collect());
        }
    }
    let missing = all.iter().position(Option::is_none);
    match missing {
        Some(rank) => Err(format!("no program for task {rank}")),
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

/// The ranks of `0`, `1-3`, `0,4-5` or `*`.
fn ranks_of(text: &str, tasks: usize) -> Option<std::vec::IntoIter<usize>> {
    if text == "*" {
        return Some((0..tasks).collect::<Vec<_>>().into_iter());
    }
    let mut ranks = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        ranks.extend(first..=last.min(first.saturating_add(tasks)));
    }
    Some(ranks.into_iter())
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
        for (text, why) in [
            ("0 a", "no program for task 1"),
            ("0-1", "line 1: no program for tasks 0-1"),
            ("x a", "line 1: bad tasks x"),
        ] {
            assert_eq!(commands(text, 2), Err(why.to_owned()));
        }
    }
}
