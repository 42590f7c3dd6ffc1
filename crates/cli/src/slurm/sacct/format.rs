//! Lines of `sacct`: the chosen fields, padded to columns or with a text between them.

use super::super::table::escape_from;
use super::columns::{FIELDS, Field, Kind};
use super::entry::{Entry, Report};

/// The usual fields.
pub(super) const USUAL: &str = "jobid,jobname,partition,account,alloccpus,state,exitcode";
pub(super) const BRIEF: &str = "jobid,state,exitcode";
pub(super) const LONG: &str = "jobid,jobidraw,jobname,partition,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,\
    maxrss,maxrssnode,maxrsstask,averss,maxpages,maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,\
    ntasks,alloccpus,elapsed,state,exitcode,avecpufreq,reqcpufreqmin,reqcpufreqmax,reqcpufreqgov,reqmem,consumedenergy,\
    maxdiskread,maxdiskreadnode,maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode,maxdiskwritetask,avediskwrite,\
    reqtres,alloctres,tresusageinave,tresusageinmax,tresusageinmaxn,tresusageinmaxt,tresusageinmin,tresusageinminn,\
    tresusageinmint,tresusageintot,tresusageoutmax,tresusageoutmaxn,tresusageoutmaxt,tresusageoutave,tresusageouttot";

/// A field with its width; negative if values stand at the left.
pub(super) struct Column {
    field: &'static Field,
    width: i32,
}

/// Names of fields in Slurm before version 22, which scripts still use, and today's.
const FORMER: [(&str, &str); 3] = [("Reserved", "Planned"), ("ResvCPU", "PlannedCPU"), ("ResvCPURAW", "PlannedCPURAW")];

/// How lines are written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Style {
    #[default]
    Padded,
    /// With a text between values, and after the last one if `is_closed`.
    Delimited { delimiter: String, is_closed: bool },
}

/// Returns the columns that a list such as `jobid,state%20` names. The first field counts whose name begins with the text.
///
/// # Errors
/// Returns the first name that no field has.
pub(super) fn choose(list: &str) -> Result<Vec<Column>, String> {
    let mut columns = Vec::new();
    for item in list.split(',').map(str::trim_start).filter(|item| !item.is_empty()) {
        let (name, width) = item.split_once('%').map_or((item, None), |(name, width)| (name, Some(parse_width(width))));
        let begins = |full: &str| full.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        let column = |field: &'static Field| Column { field, width: width.unwrap_or(field.width) };
        if begins("ALL") {
            columns.extend(FIELDS.iter().map(column));
            continue;
        }
        let former = FORMER.iter().find(|(former, _)| former.eq_ignore_ascii_case(name));
        let name = former.map_or(name, |(_, current)| current);
        let begins = |full: &str| full.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        let field = FIELDS.iter().find(|field| begins(field.name)).ok_or_else(|| name.to_owned())?;
        columns.push(column(field));
    }
    Ok(columns)
}

/// Parses the number at the start of a text.
fn parse_width(text: &str) -> i32 {
    let sign = usize::from(text.starts_with('-'));
    let digits = text[sign..].bytes().take_while(u8::is_ascii_digit).count();
    text[..sign + digits].parse().unwrap_or(0)
}

/// All names, four on a line.
pub(super) fn names() -> String {
    let lines = FIELDS.chunks(4).map(|some| {
        let line: Vec<String> = some.iter().map(|field| format!("{:<19}", field.name)).collect();
        line.join(" ") + "\n"
    });
    lines.collect()
}

/// Appends the header to a text.
pub(super) fn write_header(columns: &[Column], style: &Style, out: &mut String) {
    write_cells(columns, style, out, |column, out| {
        out.push_str(column.field.name);
        // Names are cut without a mark.
        Kind::Time
    });
    if *style == Style::Padded {
        for column in columns {
            out.extend(std::iter::repeat_n('-', column.width.unsigned_abs() as usize));
            out.push(' ');
        }
        out.push('\n');
    }
}

/// Appends the line of an entry to a text.
pub(super) fn write_entry(columns: &[Column], style: &Style, report: &mut Report, entry: &Entry<'_>, out: &mut String) {
    write_cells(columns, style, out, |column, out| {
        let start = out.len();
        column.field.append(report, entry, out);
        escape_from(out, start);
        column.field.kind
    });
}

fn write_cells(
    columns: &[Column],
    style: &Style,
    out: &mut String,
    mut append: impl FnMut(&Column, &mut String) -> Kind,
) {
    for (position, column) in columns.iter().enumerate() {
        let start = out.len();
        let kind = append(column, out);
        match style {
            Style::Padded => {
                fit(out, start, column.width, kind);
                out.push(' ');
            }
            Style::Delimited { delimiter, is_closed } => {
                if *is_closed || position + 1 < columns.len() {
                    out.push_str(delimiter);
                }
            }
        }
    }
    out.push('\n');
}

/// Cuts or fills the text from `start` on to a width.
fn fit(out: &mut String, start: usize, width: i32, kind: Kind) {
    let (is_left, width) = (width < 0, width.unsigned_abs() as usize);
    let len = out[start..].chars().count();
    if len > width && kind != Kind::Number {
        let kept = if kind == Kind::Text { width.saturating_sub(1) } else { width };
        let cut = out[start..].char_indices().nth(kept).map_or(out.len(), |(at, _)| start + at);
        out.truncate(cut);
        if kind == Kind::Text && width > 0 {
            out.push('+');
        }
        return;
    }
    let blanks = " ".repeat(width.saturating_sub(len));
    if is_left { out.push_str(&blanks) } else { out.insert_str(start, &blanks) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(list: &str, style: &Style) -> String {
        let mut out = String::new();
        write_header(&choose(list).unwrap_or_else(|name| panic!("{name}")), style, &mut out);
        out
    }

    #[test]
    fn headers_are_slurms() {
        assert_eq!(
            header(USUAL, &Style::Padded),
            "JobID           JobName  Partition    Account  AllocCPUS      State ExitCode \n\
             ------------ ---------- ---------- ---------- ---------- ---------- -------- \n"
        );
        assert_eq!(header("state%3,JOBIDRAW%-10,,", &Style::Padded), "Sta JobIDRaw   \n--- ---------- \n");
        let delimited = |delimiter: &str, is_closed| Style::Delimited { delimiter: delimiter.to_owned(), is_closed };
        assert_eq!(header("jobid%3,Sta,reqt", &delimited("|", false)), "JobID|Start|ReqTRES\n");
        assert_eq!(header("jobid,state", &delimited("^|^", true)), "JobID^|^State^|^\n");
        assert_eq!(header("all", &delimited(" ", false)).split(' ').count(), FIELDS.len());
        assert_eq!(header(LONG, &delimited(",", false)).split(',').count(), LONG.split(',').count());
    }

    #[test]
    fn every_listed_name_can_be_chosen() {
        let names = names();
        assert!(names.starts_with("Account             AdminComment        AllocCPUS           AllocNodes         \n"));
        let list = names.split_whitespace().collect::<Vec<_>>().join(",");
        let chosen = choose(&list).unwrap_or_else(|name| panic!("{name}"));
        assert!(chosen.iter().zip(FIELDS).all(|(column, field)| column.field.name == field.name));
        assert_eq!(choose("jobid,nosuch%3").err().as_deref(), Some("nosuch"));
        assert_eq!(choose("reserved%8").expect("a former name")[0].field.name, "Planned");
    }

    #[test]
    fn long_values_are_cut_with_a_mark() {
        let fitted = |text: &str, width, kind| {
            let mut out = format!("before {text}");
            fit(&mut out, 7, width, kind);
            out.split_off(7)
        };
        assert_eq!(fitted("CANCELLED by 0", 10, Kind::Text), "CANCELLED+");
        assert_eq!(fitted("CANCELLED by 0", 20, Kind::Text), "      CANCELLED by 0");
        assert_eq!(fitted("name", -6, Kind::Text), "name  ");
        assert_eq!(fitted("123456", 3, Kind::Number), "123456");
        assert_eq!(fitted("2026-01-02T03:04:05", 10, Kind::Time), "2026-01-02");
        assert_eq!(fitted("äöü", 2, Kind::Text), "ä+");
    }
}
