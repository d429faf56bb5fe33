"""A request for text: from a viewer over the hub to the producer that leads, and its answer back to that viewer alone."""

import pytest

INFO = {"prompts": 128, "tokens": 4096, "context": 128}
LAB = {"controls": ["generate"], "generation": INFO}
REQUEST = {"prompts": ["The list", "A"], "tokens": 8, "temperature": 0.5}


def generate(id="g1", request=REQUEST):
    return {"type": "generate", "id": id, "request": request}


def test_a_request_reaches_the_producer_with_who_asked_and_its_answer_that_viewer_alone(hub):
    asker, other = hub.viewer(name="panel"), hub.viewer(name="kernel")
    producer = hub.producer(**LAB)
    assert asker.wait("hello")["generation"] == INFO
    asker.send(generate())
    passed = producer.wait("generate")
    assert passed["request"] == REQUEST
    assert passed["by"]["name"] == "panel"
    producer.send({"type": "generating", "id": passed["id"], "generation": 3, "control": 2})
    assert asker.wait("generating") == {"type": "generating", "id": "g1", "generation": 3, "control": 2}
    other.send(generate("g1"))
    second = producer.wait("generate")
    assert second["id"] != passed["id"]
    producer.send(
        {
            "type": "error",
            "code": "bad-parameter",
            "message": "No.",
            "field": "request.seed",
            "reply_to": second["id"],
        }
    )
    refusal = other.wait("error")
    assert (refusal["reply_to"], refusal["field"]) == ("g1", "request.seed")
    assert [message["type"] for message in other.messages].count("generating") == 0


def test_cancelling_is_passed_on_like_a_request(hub):
    viewer, producer = hub.viewer(), hub.producer(**LAB)
    viewer.send({"type": "cancel", "id": "c1", "generation": 7})
    passed = producer.wait("cancel")
    assert passed["generation"] == 7
    producer.send({"type": "generating", "id": passed["id"], "generation": 7})
    assert viewer.wait("generating")["id"] == "c1"


def test_a_training_that_does_not_allow_it_is_not_asked(hub):
    viewer = hub.viewer()
    hub.producer(controls=["pause"])
    viewer.send(generate())
    error = viewer.wait("error")
    assert (error["code"], error["reply_to"]) == ("refused", "g1")
    assert "allow=" in error["message"]


def test_before_any_producer_came_nothing_is_said_of_what_it_allows(hub):
    viewer = hub.viewer()
    viewer.send(generate())
    error = viewer.wait("error")
    assert (error["code"], error["reply_to"]) == ("no-producer", "g1")


def test_without_a_producer_the_answer_says_so_and_so_it_does_when_it_goes(hub):
    viewer, producer = hub.viewer(), hub.producer(**LAB)
    viewer.send(generate())
    producer.wait("generate")
    producer.close()
    error = viewer.wait("error")
    assert (error["code"], error["reply_to"]) == ("no-producer", "g1")
    viewer.send(generate("g2"))
    assert viewer.wait("error")["reply_to"] == "g2"


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"prompts": []}, "request.prompts"),
        ({"prompts": [""]}, "request.prompts.0"),
        ({"prompts": ["x"] * 129}, "request.prompts"),
        ({"prompts": ["x"], "temperature": 101}, "request.temperature"),
        ({"prompts": ["x"], "top_p": 0}, "request.top_p"),
        ({"prompts": ["x"], "lens": 21}, "request.lens"),
        ({"prompts": ["x"], "beams": 4}, "request"),
        ({"prompts": ["x"], "sweep": {"over": "weather", "values": [1]}}, "request.sweep"),
    ],
)
def test_a_malformed_request_names_its_field_and_never_reaches_the_producer(standing_hub, request_, field):
    viewer, producer = standing_hub.viewer(), standing_hub.producer(**LAB)
    viewer.send(generate("bad", request_))
    error = viewer.wait("error")
    assert (error["code"], error["reply_to"]) == ("bad-message", "bad")
    assert error["field"].startswith(field)
    viewer.send(generate("good"))
    assert producer.wait("generate")["request"] == REQUEST


def test_a_viewer_may_have_sixteen_requests_unanswered(hub):
    viewer, producer = hub.viewer(), hub.producer(**LAB)
    for number in range(17):
        viewer.send(generate(f"g{number}"))
    error = viewer.wait("error")
    assert (error["code"], error["reply_to"]) == ("refused", "g16")
    passed = [producer.wait("generate") for _ in range(16)]
    producer.send({"type": "generating", "id": passed[0]["id"], "generation": 1})
    viewer.wait("generating")
    viewer.send(generate("again"))
    producer.wait("generate")
