//! What becomes of the operations of documents.

use placet_types::{contract::file::TenantsFile, mode::ApprovalMode};
use serde_json::{Value, json};

use super::{Failure, ImportOptions, Imported, Service, contract_of};

fn named(document: &Value, mode: ApprovalMode, own: Option<&str>) -> Result<Imported, Failure> {
    let named = own.map(|own| (own.to_owned(), "chosen".parse().unwrap()));
    let options = ImportOptions {
        environment: "dev".parse().unwrap(),
        tenants: TenantsFile::Only(["acme".parse().unwrap()].into()),
        mode,
        names: named.into_iter().collect(),
    };
    let name = "pets".parse().unwrap();
    let service = Service { name: &name, base: None, private_network: false, secret: Some("pets") };
    contract_of(document, &service, &options)
}

fn imported(document: &Value, mode: ApprovalMode) -> (Value, Vec<String>) {
    let made = named(document, mode, None).unwrap();
    (serde_json::to_value(made.file).unwrap(), made.notes)
}

fn pets() -> Value {
    json!({
        "openapi": "3.0.3", "info": { "title": "Pets" }, "servers": [{ "url": "https://pets.example/v1" }],
        "components": {
            "securitySchemes": { "key": { "type": "apiKey", "in": "header", "name": "X-Api-Key" } },
            "parameters": { "Limit": { "name": "limit", "in": "query", "schema": { "type": "integer", "minimum": 0, "exclusiveMinimum": true } } },
            "schemas": {
                "Pet": { "type": "object", "required": ["name"], "properties": {
                    "name": { "type": "string" }, "owner": { "$ref": "#/components/schemas/Owner" },
                } },
                "Owner": { "type": "object", "properties": { "mail": { "type": "string", "nullable": true }, "pets": { "type": "array", "items": { "$ref": "#/components/schemas/Pet" } } } },
            },
        },
        "paths": {
            "/pets": {
                "get": { "operationId": "listPets", "summary": "Lists pets.", "parameters": [{ "$ref": "#/components/parameters/Limit" }] },
                "post": { "operationId": "addPet", "requestBody": { "required": true, "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Pet" } } } } },
            },
            "/pets/{id}": {
                "parameters": [{ "name": "id", "in": "path", "required": true, "schema": { "type": "string" } }],
                "delete": {},
                "put": { "operationId": "photo", "requestBody": { "required": true, "content": { "image/png": {} } } },
            },
        },
    })
}

#[test]
fn each_operation_becomes_a_capability_with_its_request_and_schema() {
    let (file, notes) = imported(&pets(), ApprovalMode::Destructive);
    let tools = &file["capabilities"];
    assert_eq!(file["transport"]["url"], "https://pets.example/v1");
    assert_eq!(file["credential"]["header"], "x-api-key");
    assert_eq!(
        (&tools["listPets"]["mode"], &tools["listPets"]["effect"]),
        (&json!("network"), &json!("none"))
    );
    assert_eq!(tools["listPets"]["rest"]["query"], json!({ "limit": "{limit}" }));
    assert_eq!(
        tools["listPets"]["input_schema"]["properties"]["limit"],
        json!({ "type": "integer", "exclusiveMinimum": 0 })
    );
    let add = &tools["addPet"];
    assert_eq!((&add["mode"], &add["dedup"]["class"]), (&json!("destructive"), &json!("opaque")));
    assert_eq!(add["input_schema"]["required"], json!(["name"]));
    assert_eq!(add["input_schema"]["properties"]["owner"], json!({ "$ref": "#/$defs/Owner" }));
    assert_eq!(
        add["input_schema"]["$defs"]["Owner"]["properties"]["mail"]["type"],
        json!(["string", "null"])
    );
    assert_eq!(tools["delete_pets__id"]["rest"]["path"], "/pets/{id}");
    assert_eq!(tools["delete_pets__id"]["input_schema"]["required"], json!(["id"]));
    assert_eq!(notes, ["`PUT /pets/{id}` is left out: its body is not `application/json`"]);
}

#[test]
fn parameters_that_cannot_be_sent_as_described_leave_their_operation_out() {
    let list = json!({ "type": "array", "items": { "type": "string" } });
    let object = json!({ "type": "object" });
    let lists = json!({ "type": ["array", "null"], "items": list });
    let either = json!({ "oneOf": [{ "type": "string" }, { "$ref": "#/components/schemas/Pet" }] });
    for (parameter, why) in [
        (json!({ "in": "query", "schema": list, "explode": false }), "`explode: false`"),
        (json!({ "in": "query", "schema": list, "style": "pipeDelimited" }), "pipeDelimited"),
        (json!({ "in": "query", "schema": object, "style": "deepObject" }), "deepObject"),
        (json!({ "in": "query", "schema": object }), "is an object"),
        (json!({ "in": "query", "schema": { "properties": {} } }), "is an object"),
        (json!({ "in": "query", "schema": either }), "is an object"),
        (json!({ "in": "query", "schema": lists }), "a list of such"),
        (json!({ "in": "query", "content": {} }), "`content`"),
        (json!({ "in": "header", "schema": list }), "a list in its header"),
    ] {
        let mut document = pets();
        let operation = &mut document["paths"]["/pets"]["get"];
        operation["parameters"] = json!([parameter]);
        operation["parameters"][0]["name"] = json!("x-tags");
        // The operation can do without it, unless it is required.
        let (file, notes) = imported(&document, ApprovalMode::Destructive);
        assert_eq!(file["capabilities"]["listPets"]["rest"]["query"], json!({}), "{parameter}");
        assert!(notes[0].contains("the parameter `x-tags`") && notes[0].contains(why));
        document["paths"]["/pets"]["get"]["parameters"][0]["required"] = json!(true);
        let (file, notes) = imported(&document, ApprovalMode::Destructive);
        assert!(file["capabilities"].get("listPets").is_none(), "{parameter}");
        let note = &notes[0];
        assert!(note.contains("its parameter `x-tags`") && note.contains(why), "{note}");
    }
    let mut document = pets();
    document["paths"]["/pets"]["get"]["parameters"] = json!([
        { "name": "tags", "in": "query", "style": "form", "explode": true, "schema": list },
        { "name": "one", "in": "query", "explode": false, "schema": { "type": "string" } },
    ]);
    let (file, _) = imported(&document, ApprovalMode::Destructive);
    let query = &file["capabilities"]["listPets"]["rest"]["query"];
    assert_eq!(*query, json!({ "tags": "{tags}", "one": "{one}" }));
}

#[test]
fn what_reads_by_the_operators_word_reads() {
    let (file, _) = imported(&pets(), ApprovalMode::ReadOnly);
    let tools = &file["capabilities"];
    assert_eq!(
        (&tools["addPet"]["mode"], &tools["addPet"]["effect"]),
        (&json!("read_only"), &json!("none"))
    );
}

#[test]
fn what_only_answers_have_is_no_argument() {
    let mut document = pets();
    let schemas = &mut document["components"]["schemas"];
    schemas["Id"] = json!({ "type": "string", "readOnly": true });
    schemas["Pet"]["properties"]["id"] = json!({ "$ref": "#/components/schemas/Id" });
    schemas["Pet"]["required"] = json!(["id", "name"]);
    schemas["Owner"]["properties"]["since"] = json!({ "type": "string", "readOnly": true });
    schemas["Owner"]["required"] = json!(["since", "mail"]);
    let (file, _) = imported(&document, ApprovalMode::Destructive);
    let schema = &file["capabilities"]["addPet"]["input_schema"];
    assert!(schema["properties"].get("id").is_none(), "{schema:#}");
    assert_eq!(schema["required"], json!(["name"]));
    let owner = &schema["$defs"]["Owner"];
    assert!(owner["properties"].get("since").is_none(), "{owner:#}");
    assert_eq!(owner["required"], json!(["mail"]));
}

#[test]
fn members_named_like_keywords_stay() {
    let mut document = pets();
    let owner = &mut document["components"]["schemas"]["Owner"];
    owner["properties"]["nullable"] = json!({ "type": "boolean", "nullable": true });
    owner["properties"]["$ref"] = json!({ "type": "string" });
    owner["example"] = json!({ "$ref": "elsewhere", "nullable": true });
    let (file, notes) = imported(&document, ApprovalMode::Destructive);
    let owner = &file["capabilities"]["addPet"]["input_schema"]["$defs"]["Owner"];
    assert_eq!(
        owner["properties"]["nullable"],
        json!({ "type": ["boolean", "null"] }),
        "{notes:?}"
    );
    assert_eq!(owner["properties"]["$ref"], json!({ "type": "string" }));
    assert_eq!(owner["example"], json!({ "$ref": "elsewhere", "nullable": true }));
}

#[test]
fn what_would_not_be_sent_as_described_is_left_out() {
    let body =
        |kind: &str| json!({ "content": { kind: { "schema": { "properties": { "x": {} } } } } });
    let parameter = |place| json!({ "name": "id", "in": place, "required": true });
    let required = {
        let mut body = body("application/json");
        body["required"] = json!(true);
        body
    };
    for (operation, why) in [
        (json!({ "requestBody": required }), "it needs a body"),
        (json!({ "servers": [{ "url": "https://other.example" }] }), "`servers` of its own"),
        (json!({ "parameters": [parameter("path"), parameter("query")] }), "are named `id`"),
    ] {
        let mut document = pets();
        document["paths"]["/pets/{id}"]["delete"] = operation;
        let (file, notes) = imported(&document, ApprovalMode::Destructive);
        assert!(file["capabilities"].get("delete_pets__id").is_none(), "{why}");
        let note = notes.last().unwrap();
        assert!(
            note.starts_with("`DELETE /pets/{id}` is left out") && note.contains(why),
            "{note}"
        );
    }
    let mut document = pets();
    document["paths"]["/pets"]["servers"] = json!([{ "url": "https://other.example" }]);
    document["paths"]["/pets/{id}"]["servers"] = document["servers"].clone();
    document["paths"]["/pets/{id}"]["delete"]["requestBody"] = body("application/json");
    let (file, notes) = imported(&document, ApprovalMode::Destructive);
    let names: Vec<_> = file["capabilities"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["delete_pets__id"]);
    let properties = &file["capabilities"]["delete_pets__id"]["input_schema"]["properties"];
    assert!(properties.get("x").is_none(), "{properties}");
    assert!(notes.iter().any(|note| note.contains("`DELETE /pets/{id}`: the body is left out")));
    for (kind, is_sent) in [
        ("application/json; charset=utf-8", true),
        ("application/json; charset=latin1", false),
        ("application/merge-patch+json", false),
        ("application/vnd.api+json", false),
    ] {
        let mut document = pets();
        document["paths"]["/pets"]["post"]["requestBody"] = body(kind);
        let (file, _) = imported(&document, ApprovalMode::Destructive);
        assert_eq!(file["capabilities"].get("addPet").is_some(), is_sent, "{kind}");
    }
}

#[test]
fn a_path_that_cannot_be_filled_costs_its_operation_alone() {
    let parameter = |place| json!([{ "name": "x", "in": place, "required": true }]);
    for (path, operation, why) in [
        ("/x/{x}", json!({}), "`{x}` of its path is no path parameter"),
        ("/x/{x}", json!({ "parameters": parameter("query") }), "`{x}` of its path"),
        ("/x", json!({ "parameters": parameter("path") }), "`x` has no place in its path"),
        ("/x/{x", json!({}), "a brace is not closed"),
        ("/x?y=1", json!({}), "`rest.path` must"),
        ("/x//y", json!({}), "`rest.path` must"),
    ] {
        let mut document = pets();
        document["paths"][path]["post"] = operation;
        let (file, notes) = imported(&document, ApprovalMode::Destructive);
        assert_eq!(file["capabilities"].as_object().unwrap().len(), 3, "{path}");
        let left_out = format!("`POST {path}` is left out");
        let told = notes.iter().any(|note| note.starts_with(&left_out) && note.contains(why));
        assert!(told, "{notes:?}");
    }
}

#[test]
fn whatever_is_left_out_is_noted() {
    let mut document = pets();
    document["paths"]["/pets"]["head"] = json!({});
    document["paths"]["/pets"]["options"] = json!({});
    document["paths"]["/other"] = json!({ "$ref": "#/components/pathItems/Other" });
    let parameter = |name, place| json!({ "name": name, "in": place });
    document["paths"]["/pets"]["get"]["parameters"] = json!([
        parameter("visit", "cookie"),
        parameter("Traceparent", "header"),
        parameter("Authorization", "header"),
    ]);
    let (_, notes) = imported(&document, ApprovalMode::Destructive);
    let expected = [
        "`HEAD /pets` is left out: a contract has no such method",
        "`OPTIONS /pets` is left out: a contract has no such method",
        "`/other` is left out: it is a `$ref`",
        "`GET /pets`: the parameter `visit` is left out: `in: cookie` is not sent",
        "`GET /pets`: the parameter `Traceparent` is left out: Placet sends such a header itself, or not at all",
        "`PUT /pets/{id}` is left out: its body is not `application/json`",
    ];
    let sorted = |mut notes: Vec<String>| {
        notes.sort();
        notes
    };
    assert_eq!(sorted(notes), sorted(expected.map(str::to_owned).into()));
}

#[test]
fn a_name_for_an_operation_that_is_not_there_is_refused() {
    for own in ["listPets", "delete/pets/{id}"] {
        let made = named(&pets(), ApprovalMode::Network, Some(own)).unwrap();
        assert!(made.file.capabilities.contains_key(&"chosen".parse().unwrap()), "{own}");
    }
    let refused = named(&pets(), ApprovalMode::Network, Some("nosuch")).unwrap_err().to_string();
    assert!(refused.contains("`--name nosuch=…`: the document has no such operation"), "{refused}");
}
