"""qtunnel.pmtud.story."""

from __future__ import annotations

from qtunnel.pmtud.story import MAX_DISMISSED, MAX_STEPS, Step, Story


def test_sizes_are_told_as_link_mtus() -> None:
    assert Story(4).name(1472) == Story(6).name(1452) == "1500"
    assert Story(4).names([1372, 1472, 1372]) == "1500, 1400"
    assert Story(4).names([]) == "none"


def test_steps_are_told_with_their_age_oldest_first() -> None:
    story = Story(4)
    story.add(10.0, 1200, "it began")
    story.add(11.5, 1472, "it ended")
    assert story.steps == (Step(10.0, 1200, "it began"), Step(11.5, 1472, "it ended"))
    assert story.tell(12.0) == ["2.000 s ago: it began", "0.500 s ago: it ended"]


def test_only_the_newest_steps_are_kept() -> None:
    story = Story(4)
    for number in range(MAX_STEPS + 5):
        story.add(float(number), 1200, str(number))
    assert (len(story.steps), story.steps[0].text) == (MAX_STEPS, "5")


def test_suspicions_that_came_to_nothing_do_not_crowd_out_the_rest() -> None:
    story = Story(4)
    story.add(1.0, 1472, "it was found")
    for number in range(2, 1000, 2):
        story.suspect(float(number), 1472, f"suspicion {number}")
        story.dismiss(number + 0.5, 1472, f"dismissed {number}")
    texts = [step.text for step in story.steps]
    assert texts[0] == "it was found"
    assert texts[-2:] == ["suspicion 998", "dismissed 998"]
    assert len(texts) == 1 + MAX_DISMISSED


def test_a_suspicion_that_led_to_a_black_hole_stays() -> None:
    story = Story(4)
    story.suspect(1.0, 1472, "suspicion")
    story.add(1.5, 1372, "a black hole")
    for number in range(2, 100):
        story.suspect(float(number), 1372, "another")
        story.dismiss(number + 0.5, 1372, "never mind")
    assert [step.text for step in story.steps][:2] == ["suspicion", "a black hole"]
