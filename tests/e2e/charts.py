"""Dragging over the charts of a stream's page, as a person does: on the page alone, or in Airflow's frame."""

from datetime import UTC, datetime

from playwright.sync_api import FloatRect, FrameLocator, Locator, Mouse, Page


def span(inside: Page | FrameLocator) -> tuple[datetime, datetime]:
    """The time of the page, as its charts have it."""
    data = inside.locator("#charts")
    edges = [float(data.get_attribute(f"data-{name}") or "") for name in ("from", "until")]
    return (
        datetime.fromtimestamp(edges[0] / 1_000, UTC),
        datetime.fromtimestamp(edges[1] / 1_000, UTC),
    )


def chart(inside: Page | FrameLocator) -> tuple[Locator, FloatRect]:
    """The first one: it can be seen, and where it is."""
    svg = inside.locator("#charts svg").first
    svg.scroll_into_view_if_needed()
    box = svg.bounding_box()
    assert box is not None
    return svg, box


def drag(
    mouse: Mouse, inside: Page | FrameLocator, first: float, last: float, *, let_go: bool = True
) -> None:
    """From there to there in the plot, in shares of its width."""
    _, box = chart(inside)
    left, width = (
        float(inside.locator("#charts").get_attribute(f"data-{name}") or "")
        for name in ("left", "width")
    )

    def x(share: float) -> float:
        return box["x"] + box["width"] * (left + share * (width - left)) / width

    middle = box["y"] + box["height"] / 2
    mouse.move(x(first), middle)
    mouse.down()
    mouse.move(x((first + last) / 2), middle)
    mouse.move(x(last), middle)
    if let_go:
        mouse.up()
