"""The page of `dvc plots show`, which needs no network."""

from __future__ import annotations

# DVC writes the scripts of its plots, whose hashes nobody knows beforehand, and Vega makes functions of texts. The page may
# ask for nothing all the same.
PLOTS_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:"
)


def plots_page() -> str:
    """The page of `dvc plots show` with Vega's JavaScript inside, as vl-convert carries it."""
    import vl_convert

    bundle = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # the stub lacks the default of `snippet`
    script = bundle.replace("</script", "<\\/script")
    return (
        '<!DOCTYPE html>\n<html>\n<head>\n{refresh_tag}\n<meta charset="utf-8">\n<title>Lethe: plots</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{PLOTS_POLICY}">\n'
        f"<script>\n(function () {{\n{script}\n}})();\n</script>\n"
        "<style>table { border-spacing: 15px; }</style>\n</head>\n<body>\n{plot_divs}\n</body>\n</html>\n"
    )
