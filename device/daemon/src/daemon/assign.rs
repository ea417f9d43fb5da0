//! Changes of the resources of the running functions, and of the adapter as a whole.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use vrnic_adapter::assigned::Shrink;
use vrnic_adapter::limits::Limits;
use vrnic_adapter::limits::resource::Resource;
use vrnic_control_api::FunctionConfig;
use vrnic_control_api::assignment::Assignment;
use vrnic_control_api::request::Assign;

use super::running::{Running, State};
use crate::config::{FUNCTIONS_MAX, most_of_a_function};
use crate::resources::refusal::Refusal;

impl Running {
    /// Changes the amounts that a request names, all of them or none.
    pub(super) fn assign(&self, request: &Assign) -> anyhow::Result<()> {
        let Assign { function, amounts, drain } = request;
        let shrink = if *drain { Shrink::Drain } else { Shrink::Refuse };
        let Some(name) = function else {
            let named = amounts.physical(FUNCTIONS_MAX, &most_of_a_function())?;
            let mut physical = self.maker.resources.lock().physical().clone();
            physical.extend(named);
            return Ok(self.maker.resources.lock().set_physical(physical, shrink)?);
        };
        let mut state = self.state.lock();
        let settings = state.ethernet.functions.iter().find(|settings| settings.name == *name);
        let own = &settings.ok_or_else(|| Refusal::Absent(name.clone()))?.resources;
        let new = amounts.clone().or(own.clone());
        self.assign_function(&mut state, name, new, shrink)
    }

    /// Sets the resources of a function that are its own.
    fn assign_function(
        &self,
        state: &mut State,
        name: &str,
        new: Assignment,
        shrink: Shrink,
    ) -> anyhow::Result<()> {
        let limits = new.lower(&self.maker.limits)?;
        let functions = &state.functions;
        let function = functions.iter().find(|function| function.name() == name);
        let function = function.with_context(|| Refusal::Absent(name.to_owned()))?;
        let old = self.maker.resources.lock().of(name)?;
        if limits.device_memory != old.device_memory {
            bail!(
                "the VMM maps the device memory, so it changes only if the function is added again"
            );
        }
        self.maker.resources.lock().check(&old, &limits)?;
        function.hosted().set_limits(&limits, shrink)?;
        self.maker.resources.lock().replace(name, limits);
        log_changes(name, &old, &limits);
        let settings = state.ethernet.functions.iter_mut().filter(|other| other.name == name);
        settings.for_each(|settings| settings.resources.clone_from(&new));
        Ok(())
    }

    /// Gives the running functions, and the adapter, the resources of a new version of the
    /// settings. Logs the changes that are refused.
    pub(super) fn assign_again(
        &self,
        functions: &[FunctionConfig],
        physical: &BTreeMap<Resource, u64>,
    ) {
        let _no_other_change = self.changing.lock();
        // A change may need what a later one frees, so those that are refused are tried again.
        let refused = self.try_assign(functions, physical);
        if !refused.is_empty() {
            for why in self.try_assign(functions, physical) {
                tracing::error!("resources keep their earlier amounts: {why}");
            }
        }
    }

    /// Tries to make all changes. Returns the reasons for which some are refused.
    fn try_assign(
        &self,
        functions: &[FunctionConfig],
        physical: &BTreeMap<Resource, u64>,
    ) -> Vec<String> {
        let mut refused = Vec::new();
        let set = self.maker.resources.lock().set_physical(physical.clone(), Shrink::Refuse);
        refused.extend(set.err().map(|why| why.to_string()));
        let mut state = self.state.lock();
        for new in functions {
            let has = state.ethernet.functions.iter().find(|has| has.name == new.name);
            if has.is_none_or(|has| has.resources == new.resources) {
                continue;
            }
            let own = new.resources.clone();
            let done = self.assign_function(&mut state, &new.name, own, Shrink::Refuse);
            refused.extend(done.err().map(|why| format!("function {}: {why:#}", new.name)));
        }
        refused
    }
}

/// Logs the maxima of a function that have changed.
fn log_changes(function: &str, old: &Limits, new: &Limits) {
    for resource in Resource::ALL.iter().filter(|kind| old.of(**kind) != new.of(**kind)) {
        let (name, maximum) = (resource.name(), new.of(*resource));
        tracing::info!(function, "the maximum of {name} is now {maximum}");
    }
}
