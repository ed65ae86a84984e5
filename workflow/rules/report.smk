# Figures from the statistics tables, and the report that holds them.
#
# make_figures   statistics tables     -> results/{experiment}/make_figures: svg/, pdf/, png/, one description a figure
# render_report  run.json of all above -> reports/{experiment}: index.html, figures/, tables/, numbers.tex
# draw_page, report_page  the same for a page of its own, in reports/{experiment}/{page}


rule make_figures:
    input:
        tables=[
            "results/{experiment}/summarize_policies/{model}/{corpus}/summary.parquet",
            "results/{experiment}/analyze_traces/{model}/{corpus}/exploratory/gate_weight.parquet",
            "results/{experiment}/analyze_traces/{model}/{corpus}/exploratory/reuse.parquet",
            *statistics_tables("{experiment}"),
        ],
    output:
        figures=[
            report(
                f"results/{{experiment}}/make_figures/{{model}}/{{corpus}}/svg/{figure}.svg",
                caption=f"../report/{figure}.rst",
                category="Figures",
            )
            for figure in FIGURES
        ],
        run="results/{experiment}/make_figures/{model}/{corpus}/run.json",
    log:
        "results/{experiment}/make_figures/{model}/{corpus}/make_figures.log",
    params:
        cfg=cfg("make_figures"),
        code=code("make_figures"),
        out=subpath(output.run, parent=True),
        tables=lambda wildcards, input: named("tables", input.tables),
    shell:
        "python -m expertmiss make_figures --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " {params.tables} --out {params.out:q} --log {log:q}"


rule render_report:
    input:
        runs=lambda wildcards: stage_runs(wildcards.experiment),
        added=added_hosts,
    output:
        page=report(
            "reports/{experiment}/index.html",
            caption="../report/index.rst",
            category="Report",
        ),
        numbers="reports/{experiment}/numbers.tex",
        figures=directory("reports/{experiment}/figures"),
        tables=directory("reports/{experiment}/tables"),
        run="reports/{experiment}/run.json",
    log:
        "results/{experiment}/render_report/render_report.log",
    params:
        cfg=cfg("render_report"),
        code=code("render_report"),
        out=subpath(output.run, parent=True),
        runs=lambda wildcards, input: f"{named('runs', input.runs)} {named('added', input.added)}",
    shell:
        "python -m expertmiss render_report --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " {params.runs} --out {params.out:q} --log {log:q}"


# Pages of their own (common.smk: OWN_PAGES): Experiment B, its pilot, single substitutions, the generation test.
ruleorder: report_page > render_report


rule draw_page:
    input:
        run=lambda wildcards: f"{page_folder(wildcards)}/run.json",
        tables=lambda wildcards: [
            f"{page_folder(wildcards)}/{table}.parquet"
            for table in OWN_PAGES[wildcards.page][1]
        ],
    output:
        run="results/{experiment}/draw_{page}/run.json",
    log:
        "results/{experiment}/draw_{page}/make_figures.log",
    params:
        cfg=cfg("make_figures"),
        code=code("make_figures"),
        out=subpath(output.run, parent=True),
        tables=lambda wildcards, input: named("tables", input.tables),
    shell:
        "python -m expertmiss make_figures --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " {params.tables} --out {params.out:q} --log {log:q}"


rule report_page:
    input:
        runs=page_runs,
    output:
        page="reports/{experiment}/{page}/index.html",
        numbers="reports/{experiment}/{page}/numbers.tex",
        figures=directory("reports/{experiment}/{page}/figures"),
        tables=directory("reports/{experiment}/{page}/tables"),
        run="reports/{experiment}/{page}/run.json",
    log:
        "results/{experiment}/draw_{page}/render_report.log",
    params:
        cfg=cfg("render_report"),
        code=code("render_report"),
        out=subpath(output.run, parent=True),
        runs=lambda wildcards, input: named("runs", input.runs),
    shell:
        "python -m expertmiss render_report --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " {params.runs} --out {params.out:q} --log {log:q}"
