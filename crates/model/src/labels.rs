//! Labels of jobs: values by name, for people and for tools that submit jobs.

use std::collections::BTreeMap;

use utoipa::openapi::schema::{AdditionalProperties, SchemaType};
use utoipa::openapi::{ObjectBuilder, Schema, Type};

/// Labels of a job: values by name. Hostler stores and shows them and gives them no meaning. Everyone who may see the queue
/// may see them.
pub type Labels = BTreeMap<String, String>;

/// The largest number of labels of a job.
pub const MAX_LABELS: usize = 64;

/// The label of an array whose tasks each take a job number; see [`JobSpec::numbers`](crate::JobSpec::numbers).
pub const NUMBERED: &str = "slurm.numbered";

/// The label of an array whose tasks are calls of a Python function. Their results are for the program that maps the function.
pub const MAP: &str = "map-content";

/// The largest size of a label's value, in characters.
const MAX_VALUE_CHARACTERS: usize = 1024;

/// The largest size of a label's name, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// Returns what is wrong with these labels; `None` if they are valid.
#[must_use]
pub fn labels_problem(labels: &Labels) -> Option<String> {
    if labels.len() > MAX_LABELS {
        return Some(format!("a job has at most {MAX_LABELS} labels"));
    }
    labels.iter().find_map(|(name, value)| {
        if !is_label_name(name) {
            return Some(format!(
                "`{}` is not a valid name of a label; names have at most 64 of the characters a-z, 0-9, '_', '.' and '-', and \
                 begin with a letter",
                name.escape_debug()
            ));
        }
        let is_value = value.chars().count() <= MAX_VALUE_CHARACTERS && !value.contains(char::is_control);
        (!is_value).then(|| {
            format!("the value of the label {name} must have at most {MAX_VALUE_CHARACTERS} characters, and no control characters")
        })
    })
}

/// Returns whether a text is a valid name of a label.
#[must_use]
pub fn is_label_name(name: &str) -> bool {
    let is_inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_.-".contains(byte);
    name.len() <= MAX_NAME_BYTES
        && name.as_bytes().first().is_some_and(u8::is_ascii_lowercase)
        && name.as_bytes().iter().all(is_inner)
}

/// Returns the JSON schema of labels.
#[must_use]
pub fn labels_schema() -> Schema {
    described(&[Type::Object, Type::Null], &[Type::String])
        .max_properties(Some(MAX_LABELS))
        .description(Some("Labels of the job: values by name, which Hostler only stores and shows."))
        .into()
}

/// The description of changes of labels in the API's schema.
#[must_use]
pub fn label_changes_schema() -> Schema {
    described(&[Type::Object], &[Type::String, Type::Null])
        .description(Some("Labels to set; null removes a label. Other labels stay."))
        .into()
}

/// An object of labels with these types, and values of these types.
fn described(types: &[Type], of_values: &[Type]) -> ObjectBuilder {
    let all = |types: &[Type]| types.iter().cloned().collect::<SchemaType>();
    let value = ObjectBuilder::new().schema_type(all(of_values)).pattern(Some(r"^[^\x00-\x1f\x7f-\x9f]{0,1024}$"));
    let name = ObjectBuilder::new().schema_type(Type::String).pattern(Some("^[a-z][a-z0-9_.-]{0,63}$"));
    ObjectBuilder::new()
        .schema_type(all(types))
        .property_names(Some(Schema::from(name)))
        .additional_properties(Some(AdditionalProperties::from(Schema::from(value))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_checked() {
        let problem = |name: &str, value: &str| labels_problem(&Labels::from([(name.to_owned(), value.to_owned())]));
        for name in ["account", "a", "slurm.ntasks", "a-b_c9"] {
            assert_eq!(problem(name, "physics, group 1"), None, "{name}");
        }
        for name in ["", "A", "1a", "a b", ".a", "ä", &"a".repeat(65)] {
            assert!(problem(name, "").is_some(), "{name}");
        }
        assert!(problem("a", &"x".repeat(1025)).is_some() && problem("a", "two\nlines").is_some());
        let many: Labels = (0..=MAX_LABELS).map(|number| (format!("a{number}"), String::new())).collect();
        assert!(labels_problem(&many).is_some());
    }
}
