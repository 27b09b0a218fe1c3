//! The root: what runs under it, and who starts it again.
//!
//! Owns the shape of the tree. The guardian is a task, not an actor: it only restarts the root.

use std::sync::Arc;

use ractor::{Actor, ActorCell, ActorRef, Message, SpawnErr};

use crate::{
    actors::{
        adapter::AdapterActor,
        approvals::ApprovalsActor,
        identity::IdentityActor,
        keeper::KeeperActor,
        policy::PolicyActor,
        routes::Routes,
        supervisor::{ADAPTERS, ChildSpec, Supervisor},
        tree::Tree,
        worker::{Publish, Worker},
    },
    adapters::ports::{Port, backoff},
    call::{Call, Gated, Planned},
    context::Context,
    stages,
};

/// Root restarts in a row that end the process.
const ROOT_RESTARTS_MAX: u32 = 10;

/// Starts the tree and keeps its root up until the engine stops.
///
/// # Errors
/// [`SpawnErr`] when the first start fails.
pub(crate) async fn start(context: &Arc<Context>, tree: &Arc<Tree>) -> Result<(), SpawnErr> {
    let (_, first) = Actor::spawn(None, root(context, tree), ()).await?;
    let (context, tree) = (Arc::clone(context), Arc::clone(tree));
    drop(tokio::spawn(async move {
        let mut running = first;
        let mut tries = 0_u32;
        loop {
            drop(running.await);
            if context.stopping() {
                return;
            }
            tries = tries.saturating_add(1);
            if tries > ROOT_RESTARTS_MAX {
                return context.die("the root supervisor ended too often");
            }
            tracing::error!("the root supervisor ended and is started again");
            tokio::time::sleep(backoff(tries.saturating_sub(1))).await;
            match Actor::spawn(None, root(&context, &tree), ()).await {
                Ok((_, next)) => running = next,
                Err(error) => {
                    return context
                        .die(format!("the root supervisor could not be started: {error}"));
                }
            }
        }
    }));
    Ok(())
}

fn root(context: &Arc<Context>, tree: &Arc<Tree>) -> Supervisor {
    let mut children = vec![
        single(context, tree, "root/policy", |context, tree| PolicyActor { context, tree }),
        single(context, tree, "root/identity", |context, tree| IdentityActor { context, tree }),
        single(context, tree, "root/approvals", |context, tree| ApprovalsActor { context, tree }),
        single(context, tree, "root/keeper", |context, tree| KeeperActor { context, tree }),
    ];
    children.push(nested(context, tree, "root/build", |c, t| {
        workers(c, t, "root/build", Routes::set_build, take_build)
    }));
    children.push(nested(context, tree, "root/broker", |c, t| {
        workers(c, t, "root/broker", Routes::set_broker, take_broker)
    }));
    children.push(nested(context, tree, "root/gate", |c, t| {
        workers(c, t, "root/gate", Routes::set_gate, take_gate)
    }));
    children.push(nested(context, tree, "root/return", |c, t| {
        workers(c, t, "root/return", Routes::set_reply, take_reply)
    }));
    children.push(nested(context, tree, "root/invoke", invoke_children));
    supervisor(context, tree, "root", children)
}

/// The invoke stage: its workers, and a supervisor for each adapter.
fn invoke_children(context: &Arc<Context>, tree: &Arc<Tree>) -> Vec<ChildSpec> {
    let mut children = workers(context, tree, "root/invoke", Routes::set_invoke, take_invoke);
    children.extend(context.active().ports.all().map(|port| adapter(context, tree, port)));
    children
}

/// The supervisor of one adapter.
pub(crate) fn adapter(context: &Arc<Context>, tree: &Arc<Tree>, port: &Arc<Port>) -> ChildSpec {
    let path = format!("{ADAPTERS}/{}", port.contract.adapter);
    let (context, tree, port) = (Arc::clone(context), Arc::clone(tree), Arc::clone(port));
    spec(path.clone(), move || AdapterActor {
        context: Arc::clone(&context),
        tree: Arc::clone(&tree),
        path: path.clone(),
        port: Arc::clone(&port),
    })
}

fn take_build(context: &Arc<Context>, call: Call<Planned>) {
    stages::runner::build(context, call);
}

fn take_broker(context: &Arc<Context>, call: Call<crate::call::Built>) {
    stages::runner::broker(context, call);
}

fn take_gate(context: &Arc<Context>, call: Call<crate::call::Brokered>) {
    stages::runner::gate(context, call);
}

fn take_invoke(context: &Arc<Context>, call: Call<Gated>) {
    stages::runner::invoke(context, call);
}

fn take_reply(context: &Arc<Context>, call: Call<crate::call::Invoked>) {
    stages::runner::reply(context, call);
}

/// What a worker does with a call.
type Take<S> = fn(&Arc<Context>, Call<S>);

fn workers<S: Send + Sync + std::fmt::Debug + 'static>(
    context: &Arc<Context>,
    tree: &Arc<Tree>,
    path: &str,
    publish: Publish<S>,
    stage: Take<S>,
) -> Vec<ChildSpec> {
    (0..context.settings.stage_workers.max(1))
        .map(|number| {
            let path = format!("{path}/{number}");
            let (context, tree) = (Arc::clone(context), Arc::clone(tree));
            spec(path.clone(), move || Worker {
                context: Arc::clone(&context),
                tree: Arc::clone(&tree),
                path: path.clone(),
                number,
                publish,
                stage,
            })
        })
        .collect()
}

fn supervisor(
    context: &Arc<Context>,
    tree: &Arc<Tree>,
    path: &str,
    children: Vec<ChildSpec>,
) -> Supervisor {
    Supervisor {
        context: Arc::clone(context),
        tree: Arc::clone(tree),
        path: path.to_owned(),
        children,
    }
}

fn single<A>(
    context: &Arc<Context>,
    tree: &Arc<Tree>,
    path: &str,
    make: fn(Arc<Context>, Arc<Tree>) -> A,
) -> ChildSpec
where
    A: Actor<Arguments = ()>,
    A::Msg: Message,
{
    let (context, tree) = (Arc::clone(context), Arc::clone(tree));
    spec(path.to_owned(), move || make(Arc::clone(&context), Arc::clone(&tree)))
}

fn nested(
    context: &Arc<Context>,
    tree: &Arc<Tree>,
    path: &'static str,
    children: fn(&Arc<Context>, &Arc<Tree>) -> Vec<ChildSpec>,
) -> ChildSpec {
    let (context, tree) = (Arc::clone(context), Arc::clone(tree));
    spec(path.to_owned(), move || supervisor(&context, &tree, path, children(&context, &tree)))
}

fn spec<A>(path: String, make: impl Fn() -> A + Send + Sync + 'static) -> ChildSpec
where
    A: Actor<Arguments = ()>,
{
    ChildSpec {
        path,
        spawn: Box::new(move |parent: ActorCell| {
            let actor = make();
            Box::pin(async move {
                let (child, _): (ActorRef<A::Msg>, _) =
                    Actor::spawn_linked(None, actor, (), parent).await?;
                Ok(child.get_cell())
            })
        }),
    }
}
