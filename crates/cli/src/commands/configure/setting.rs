//! `hostler configure setting`: shows and changes settings of the cluster.

use clap::Args;

use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{Failure, Outcome};
use crate::output::{self, settings, text};

/// List, show or change settings of the cluster
///
/// Changes take effect at once and survive restarts. Only operators and admins can change settings. Write times and
/// sizes with a unit, e.g. 90s, 14d or 2G.
#[derive(Debug, Args)]
pub(crate) struct Setting {
    /// Name of a setting, e.g. retention [default: list all settings]
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// New value [default: show the current value]
    #[arg(value_name = "VALUE")]
    value: Option<String>,

    /// Restore the default value of the setting
    #[arg(long, requires = "name", conflicts_with = "value")]
    reset: bool,
}

impl Setting {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match &self.name {
            None => list(context),
            Some(name) if self.value.is_none() && !self.reset => show(context, name),
            Some(name) => change(context, name, self.value.as_deref()),
        }
    }
}

fn list(context: &Context) -> Outcome {
    let client = context.client()?;
    let all = block_on(async { Ok(client.settings().await?) })?;
    let output = &context.output;
    if output.is_json() {
        output.json(&all);
    } else if output.is_quiet() {
        all.iter().for_each(|setting| output.data(&format!("{}={}", setting.name, setting.value)));
    } else {
        output.data(&settings::list(&all, output::width()));
    }
    Ok(exit::OK)
}

fn show(context: &Context, name: &str) -> Outcome {
    let client = context.client()?;
    let all = block_on(async { Ok(client.settings().await?) })?;
    let setting = all.iter().find(|setting| setting.name == name).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|setting| setting.name.as_str()).collect();
        let failure = Failure::new(format!("unknown setting {name}")).exiting(exit::REFUSED);
        match name.split_once('=').filter(|(name, _)| names.contains(name)) {
            Some((name, value)) => failure.hint(format!("write `hostler configure setting {name} {value}`")),
            None => failure.hint(format!("settings: {}", names.join(", "))),
        }
    })?;
    let output = &context.output;
    if output.is_json() {
        output.json(setting);
    } else if output.is_quiet() {
        output.data(&setting.value);
    } else {
        output.data(&settings::one(setting, &text::Moment::now()));
    }
    Ok(exit::OK)
}

fn change(context: &Context, name: &str, value: Option<&str>) -> Outcome {
    let client = context.client()?;
    let setting = block_on(async { Ok(client.change_setting(name, value).await?) })?;
    if context.output.is_json() {
        context.output.json(&setting);
    }
    let by_default = if value.is_none() { ", the default" } else { "" };
    context.output.say(&format!("{} is {}{by_default}", setting.name, setting.value));
    Ok(exit::OK)
}
