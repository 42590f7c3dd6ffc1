//! The language of Slurm: options and scripts of its commands, host lists, times, sizes, output formats, and configuration
//! files.
//!
//! People and programs that use Slurm know its texts by heart: the form of a command line, of a batch script, and of each
//! column that a command prints. The modules here parse and write these texts exactly as Slurm 24.05 does. They are pure: no
//! module reads a file, a clock or the environment.

pub mod accounts;
pub mod conf;
pub mod container_options;
pub mod getopt;
pub mod hostlist;
pub mod ids;
mod job_keys;
pub mod job_options;
mod job_tables;
mod job_values;
pub mod job_variables;
pub mod layout;
pub mod multi_prog;
pub mod node_state;
pub mod pbs;
pub mod pmi;
pub mod reads;
pub mod script;
pub mod size;
pub mod state;
pub mod step_variables;
pub mod table;
pub mod time;
