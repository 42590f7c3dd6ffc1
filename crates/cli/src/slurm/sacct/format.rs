//! Lists of fields of `sacct`.

use hostler_slurm::table;

use super::columns::{FIELDS, Field};

/// The usual fields.
pub(super) const USUAL: &str = "jobid,jobname,partition,account,alloccpus,state,exitcode";
pub(super) const BRIEF: &str = "jobid,state,exitcode";
pub(super) const LONG: &str = "jobid,jobidraw,jobname,partition,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,\
    maxrss,maxrssnode,maxrsstask,averss,maxpages,maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,\
    ntasks,alloccpus,elapsed,state,exitcode,avecpufreq,reqcpufreqmin,reqcpufreqmax,reqcpufreqgov,reqmem,consumedenergy,\
    maxdiskread,maxdiskreadnode,maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode,maxdiskwritetask,avediskwrite,\
    reqtres,alloctres,tresusageinave,tresusageinmax,tresusageinmaxn,tresusageinmaxt,tresusageinmin,tresusageinminn,\
    tresusageinmint,tresusageintot,tresusageoutmax,tresusageoutmaxn,tresusageoutmaxt,tresusageoutave,tresusageouttot";

/// Names of fields in Slurm before version 22, which scripts still use, and today's.
const FORMER: [(&str, &str); 3] = [("Reserved", "Planned"), ("ResvCPU", "PlannedCPU"), ("ResvCPURAW", "PlannedCPURAW")];

/// Returns the fields that a list such as `jobid,state%20` names. The first field counts whose name begins with the text.
///
/// # Errors
/// Returns the first name that no field has.
pub(super) fn choose(list: &str) -> Result<Vec<Field>, String> {
    table::choose(&list.split(',').map(current).collect::<Vec<_>>().join(","), FIELDS)
}

/// An item of a list with today's names, and with the names of all fields for `ALL`.
fn current(item: &str) -> String {
    let item = item.trim_start();
    let (name, width) = item.split_at(item.find('%').unwrap_or(item.len()));
    if !name.is_empty() && "ALL".get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name)) {
        return FIELDS.iter().map(|field| format!("{}{width}", field.name)).collect::<Vec<_>>().join(",");
    }
    let former = FORMER.iter().find(|(former, _)| former.eq_ignore_ascii_case(name));
    former.map_or_else(|| item.to_owned(), |(_, current)| format!("{current}{width}"))
}

#[cfg(test)]
mod tests {
    use hostler_slurm::table::{Style, names, write_header};

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
        let names = names(FIELDS);
        assert!(names.starts_with("Account             AdminComment        AllocCPUS           AllocNodes         \n"));
        let list = names.split_whitespace().collect::<Vec<_>>().join(",");
        let chosen = choose(&list).unwrap_or_else(|name| panic!("{name}"));
        assert!(chosen.iter().zip(FIELDS).all(|(chosen, field)| chosen.name == field.name));
        assert_eq!(choose("jobid,nosuch%3").err().as_deref(), Some("nosuch"));
        assert_eq!(choose("reserved%8").expect("a former name")[0].name, "Planned");
    }
}
