//! `tidegate keys`: API keys of a server. They are made in the store itself, so that the first one can be made before
//! the server is reachable; or over a server, with an admin's key.

use clap::{Args, Subcommand};
use serde_json::json;
use tidegate_core::codes;
use tidegate_core::ids::TenantId;
use tidegate_core::time::Timestamp;
use tidegate_server::keys;
use tidegate_wire::keys::{CreatedKey, Key, NewKey, Role};

use super::facts;
use crate::config::Config;
use crate::data::{self, Target};
use crate::error::{Failure, Result};
use crate::output::{Column, Output, Table, dash, short_when};
use crate::parse;

/// Commands on keys.
#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Make a key; its secret is printed this once and kept nowhere
    #[command(after_help = "Examples:
  tidegate keys create --role admin
  tidegate keys create --role producer --tenant acme --name 'shop backend'
  export TIDEGATE_KEY=$(tidegate keys create --role worker --json | jq -r .secret)

Roles: admin may do everything; operator looks at everything and controls jobs, queues, parks and dead \
letters; producer enqueues and looks at what was enqueued; worker claims and settles.")]
    Create(CreateArgs),
    /// List keys, without their secrets
    #[command(
        visible_alias = "list",
        after_help = "Examples:
  tidegate keys ls
  tidegate keys ls --json"
    )]
    Ls,
    /// Revoke a key; servers refuse it within a second
    #[command(after_help = "Examples:
  tidegate keys revoke 4f1c2a90b7d3")]
    Revoke {
        /// Id of the key, as `keys ls` shows it
        id: String,
    },
}

/// Arguments of `keys create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// What it allows: admin, operator, producer or worker
    #[arg(long, value_name = "ROLE")]
    role: String,
    /// Restrict it to this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// What it is for, for people
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
}

/// Runs a command on keys.
pub(crate) async fn run(command: KeysCommand, config: &Config, output: &Output) -> Result<()> {
    match command {
        KeysCommand::Create(args) => create(args, config, output).await,
        KeysCommand::Ls => ls(config, output).await,
        KeysCommand::Revoke { id } => revoke(&id, config, output).await,
    }
}

fn is_remote(config: &Config) -> Result<bool> {
    Ok(matches!(data::target(config)?, Target::Remote(_)))
}

async fn create(args: CreateArgs, config: &Config, output: &Output) -> Result<()> {
    let role: Role = parse::word(&args.role)?;
    let tenant: Option<TenantId> = parse::optional_name(args.tenant.as_deref())?;
    let name = args.name.unwrap_or_else(|| match &tenant {
        Some(tenant) => format!("{role} of {tenant}"),
        None => role.to_string(),
    });
    let new = NewKey { name, role, tenant };
    let created: CreatedKey = if is_remote(config)? {
        let store = data::remote(config).await?;
        store.create_key(&new).await?
    } else {
        let data = data::open_or_create(config).await?;
        let created = keys::create(&*data.store, new, parse::now()).await;
        data.close().await?;
        created?
    };
    let value = json!({ "key": facts(&created.key)?, "secret": created.secret });
    output.answer(&value, || {
        format!(
            "{}\n\nThis is shown once. Set it as TIDEGATE_KEY, or send it as `authorization: Bearer …`.\n\
             Key {} may do what {} may{}; `tidegate keys revoke {}` ends it.",
            output.style.bold(&created.secret),
            created.key.id,
            with_article(created.key.role),
            created.key.tenant.as_ref().map_or(String::new(), |t| format!(" of tenant {t}")),
            created.key.id
        )
    })
}

fn with_article(role: Role) -> String {
    let article = if matches!(role, Role::Admin | Role::Operator) { "an" } else { "a" };
    format!("{article} {role}")
}

async fn all(config: &Config) -> Result<Vec<Key>> {
    if is_remote(config)? {
        return Ok(data::remote(config).await?.keys().await?);
    }
    let data = data::existing(config).await?;
    let all = keys::list(&*data.store, parse::now()).await;
    data.close().await?;
    Ok(all?)
}

async fn ls(config: &Config, output: &Output) -> Result<()> {
    let keys = all(config).await?;
    let now = parse::now();
    output.answer(&json!({ "keys": facts(&keys)? }), || {
        if keys.is_empty() {
            return "No keys: a server answers only programs of its own machine. `tidegate keys create --role admin` makes one."
                .into();
        }
        table(&keys, now).render(output)
    })
}

fn table(keys: &[Key], now: Timestamp) -> Table {
    let mut table = Table::new(vec![
        Column::fixed("KEY"),
        Column::text("NAME", 12),
        Column::fixed("ROLE"),
        Column::text("TENANT", 8),
        Column::fixed("ENDS IN").optional(2),
        Column::fixed("MADE").optional(1),
        Column::fixed("STATE"),
    ]);
    for key in keys {
        table.row(vec![
            key.id.clone(),
            key.name.clone(),
            key.role.to_string(),
            dash(key.tenant.as_ref().map(TenantId::as_str)),
            format!("…{}", key.last_four),
            short_when(key.created_at.0, now),
            key.revoked_at.map_or_else(|| "ok".into(), |t| format!("revoked {}", short_when(t.0, now))),
        ]);
    }
    table
}

async fn revoke(id: &str, config: &Config, output: &Output) -> Result<()> {
    // Whoever pastes the whole key means its id.
    let id = id.strip_prefix("tg_").and_then(|rest| rest.split_once('_')).map_or(id, |(id, _)| id);
    let shown: String = id.chars().take(40).collect();
    let known = if is_remote(config)? {
        let revoked = data::remote(config).await?.revoke_key(id).await;
        match revoked {
            Err(e) if e.code == codes::KEY_NOT_FOUND => false,
            other => other.map(|()| true)?,
        }
    } else {
        let data = data::existing(config).await?;
        let known = keys::revoke(&*data.store, id, parse::now()).await;
        data.close().await?;
        known?
    };
    if !known {
        return Err(Failure::new(codes::KEY_NOT_FOUND, format!("there is no key {shown:?}")));
    }
    output.answer(&json!({ "revoked": id }), || format!("Revoked {id}. Servers refuse it within a second."))
}
