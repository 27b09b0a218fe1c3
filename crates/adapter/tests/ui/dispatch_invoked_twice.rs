use placet_adapter::adapter::{Adapter, Conditions, Dispatch};

async fn twice(adapter: &dyn Adapter, dispatch: Dispatch, one: Conditions, two: Conditions) {
    let _first = adapter.invoke(dispatch, one).await;
    let _second = adapter.invoke(dispatch, two).await;
}
