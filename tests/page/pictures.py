"""Pictures of the page, to be looked at by a person."""

SCORED = "!document.querySelector('#scored').hidden && document.querySelector('#waiting').hidden"


def take(page, servers, folder):
    """Writes them into the folder."""
    open_, locked = servers
    page.scheme("light")
    page.size(1440, 1000)
    page.go(open_.url + "/")
    page.wait("ready", "document.querySelector('#server').dataset.phase === 'ready'")
    page.picture(folder / "empty.png")
    page.click("#example-first")
    page.wait("scoring", "!document.querySelector('#waiting').hidden")
    page.picture(folder / "waiting.png")
    page.wait("scored", SCORED)
    page.js("scrollTo(0, 0)")
    page.picture(folder / "light.png")
    page.choose("#keep", 3)
    page.click("#answer")
    page.wait("answers", "document.querySelector('#answer-filtered').dataset.phase === 'done'", 300)
    page.picture(folder / "answers.png")
    page.js("document.querySelector('.chunk-text').focus({preventScroll: true}); scrollTo(0, 600)")
    for _ in range(3):
        page.key("ArrowRight")
    page.picture(folder / "inspector.png")
    page.scheme("dark")
    page.js("scrollTo(0, 0)")
    page.click(".head:nth-child(3)")
    page.js("scrollTo(0, 0)")
    page.picture(folder / "dark.png")
    for scheme in ("light", "dark"):
        page.size(380, 820)
        page.scheme(scheme)
        page.js("scrollTo(0, 0)")
        page.picture(folder / f"narrow-{scheme}-form.png")
        page.js("document.querySelector('#ranking-title').scrollIntoView()")
        page.picture(folder / f"narrow-{scheme}.png")
    page.scheme("light")
    page.size(1440, 1000)
    page.write("#chunks", "word " * 30000)
    page.click("#score")
    page.wait("too long", "document.querySelector('#problem').innerText !== ''")
    page.js("scrollTo(0, 0)")
    page.picture(folder / "error.png")
    page.click("#help-open")
    page.picture(folder / "help.png")
    page.go(locked.url + "/")
    page.wait("the question for a key", "document.querySelector('#key-dialog').open", 60)
    page.picture(folder / "key.png")
    page.js("document.querySelector('#key-dialog').close()")
