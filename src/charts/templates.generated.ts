// Generated from protocol/charts/*.vl.json by scripts/generate-protocol.mjs. Do not edit: run `npm run generate`.

/** Name of a chart template. */
export type TemplateName =
  'heatmap' | 'moment-lines' | 'moment-map' | 'scalars' | 'trend-heatmap' | 'trend-lines';

/** Vega-Lite templates by name. Not to be changed: copy before filling. */
export const TEMPLATES: Readonly<Record<TemplateName, Readonly<Record<string, unknown>>>> = {
  heatmap: {
    description:
      'One flag as position by tile: a picture for each layer in a wrapping grid, and the colour scale.',
    title: { text: { expr: 'title' }, subtitle: { expr: 'caption' }, anchor: 'start', offset: 8 },
    params: [
      { name: 'title', value: '' },
      { name: 'caption', value: [] },
      { name: 'x0', value: 0 },
      { name: 'x1', value: 1 },
      { name: 'y0', value: 0 },
      { name: 'y1', value: 1 },
      { name: 'tokens', value: [] },
      { name: 'headers', value: {} },
      { name: 'legendLow', value: 0 },
      { name: 'legendAt', value: [0, 1] },
      { name: 'legendText', value: ['', ''] }
    ],
    datasets: { pictures: [], legend: [] },
    spacing: 12,
    hconcat: [
      {
        name: 'grid',
        data: { name: 'pictures' },
        facet: {
          field: 'layer',
          type: 'ordinal',
          header: {
            title: null,
            labelExpr: "headers[datum.value] != null ? headers[datum.value] : 'layer ' + datum.value",
            labelAnchor: 'start',
            labelPadding: 4
          }
        },
        columns: 1,
        spacing: 14,
        spec: {
          name: 'cell',
          width: 600,
          height: 280,
          mark: { type: 'image', aspect: false, clip: true, smooth: false },
          encoding: {
            url: { field: 'url' },
            x: {
              field: 'x',
              type: 'quantitative',
              scale: { domain: [{ expr: 'x0' }, { expr: 'x1' }], nice: false, zero: false },
              title: '$xTitle',
              axis: {
                grid: false,
                labelOverlap: true,
                tickMinStep: 1,
                labelExpr:
                  "tokens[datum.value] != null ? tokens[datum.value] : datum.value % 1 === 0 ? join(split(format(datum.value, ',d'), ','), ' ') : ''"
              }
            },
            x2: { field: 'x2' },
            y: {
              field: 'y',
              type: 'quantitative',
              scale: { domain: [{ expr: 'y0' }, { expr: 'y1' }], nice: false, zero: false, reverse: true },
              title: '$yTitle',
              axis: {
                grid: false,
                tickMinStep: 1,
                labelExpr: "datum.value % 1 === 0 ? join(split(format(datum.value, ',d'), ','), ' ') : ''",
                minExtent: 34
              }
            },
            y2: { field: 'y2' }
          }
        }
      },
      {
        name: 'ramp',
        data: { name: 'legend' },
        width: 12,
        height: 280,
        mark: { type: 'rect' },
        encoding: {
          y: {
            field: 'from',
            type: 'quantitative',
            title: '$legendTitle',
            scale: { domain: [{ expr: 'legendLow' }, 1], nice: false, zero: false },
            axis: {
              orient: 'right',
              grid: false,
              domain: false,
              values: { expr: 'legendAt' },
              labelExpr: 'legendText[indexof(legendAt, datum.value)]'
            }
          },
          y2: { field: 'to' },
          color: { field: 'color', type: 'nominal', scale: null }
        }
      }
    ]
  },
  'moment-lines': {
    description:
      'A statistic of groups of tensors over steps, one line a group; or over layers at one step, as lines or bars. Stretches with non-finite values are marked along the top.',
    title: { text: { expr: 'title' }, subtitle: { expr: 'caption' }, anchor: 'start', offset: 8 },
    params: [
      { name: 'title', value: '' },
      { name: 'caption', value: [] },
      { name: 'x0', value: 0 },
      { name: 'x1', value: 1 },
      { name: 'y0', value: 0 },
      { name: 'y1', value: 1 },
      { name: 'keyText', value: [] }
    ],
    datasets: { pictures: [], bars: [], rows: [], nonfinite: [], key: [] },
    width: 600,
    height: 300,
    layer: [
      {
        name: 'pictures',
        data: { name: 'pictures' },
        mark: { type: 'image', aspect: false, clip: true, smooth: true },
        encoding: {
          url: { field: 'url' },
          x: { field: 'x', type: 'quantitative' },
          x2: { field: 'x2' },
          y: { field: 'y', type: 'quantitative' },
          y2: { field: 'y2' }
        }
      },
      {
        name: 'bars',
        data: { name: 'bars' },
        mark: { type: 'rect', clip: true, opacity: 1 },
        encoding: {
          x: { field: 'x', type: 'quantitative' },
          x2: { field: 'x2' },
          y: { field: 'value', type: 'quantitative' },
          y2: { field: 'base' },
          color: { field: 'color', type: 'nominal', scale: null }
        }
      },
      {
        name: 'lines',
        data: { name: 'rows' },
        mark: {
          type: 'line',
          clip: true,
          strokeWidth: 1.5,
          strokeJoin: 'round',
          invalid: 'break-paths-show-path-domains'
        },
        encoding: {
          x: {
            field: 'x',
            type: 'quantitative',
            scale: { domain: [{ expr: 'x0' }, { expr: 'x1' }], nice: false, zero: false },
            title: '$xTitle',
            axis: {
              labelExpr: "datum.value % 1 === 0 ? join(split(format(datum.value, ',d'), ','), ' ') : ''",
              tickMinStep: 1,
              labelSeparation: 8
            }
          },
          y: {
            field: 'value',
            type: 'quantitative',
            scale: { domain: [{ expr: 'y0' }, { expr: 'y1' }], nice: false, zero: false, type: '$yScale' },
            title: '$yTitle',
            axis: {
              labelExpr:
                "abs(datum.value) >= 1e5 || (datum.value != 0 && abs(datum.value) < 1e-5) ? format(datum.value, '.3~e') : join(split(format(datum.value, ',.4~r'), ','), ' ')",
              minExtent: 44,
              tickCount: 6
            }
          },
          color: { field: 'color', type: 'nominal', scale: null },
          detail: { field: 'line' },
          opacity: { field: 'opacity', type: 'quantitative', scale: null, legend: null },
          strokeDash: { field: 'dash', type: 'nominal', scale: null, legend: null }
        }
      },
      {
        name: 'points',
        transform: [{ filter: 'datum.alone' }],
        data: { name: 'rows' },
        mark: { type: 'point', filled: true, size: 24, clip: true, opacity: 1 },
        encoding: {
          x: { field: 'x', type: 'quantitative' },
          y: { field: 'value', type: 'quantitative' },
          color: { field: 'color', type: 'nominal', scale: null }
        }
      },
      {
        name: 'nonfinite',
        data: { name: 'nonfinite' },
        mark: { type: 'rect', clip: true, strokeWidth: 2 },
        encoding: {
          x: { field: 'x', type: 'quantitative' },
          x2: { field: 'x2' },
          y: { value: 1 },
          y2: { value: 8 },
          color: { field: 'color', type: 'nominal', scale: null },
          stroke: { field: 'color', type: 'nominal', scale: null, legend: null }
        }
      },
      {
        name: 'key',
        data: { name: 'key' },
        mark: { type: 'point', opacity: 0, clip: true },
        encoding: {
          color: {
            field: 'place',
            type: 'ordinal',
            title: '$colorTitle',
            scale: { range: { field: 'color' } },
            legend: {
              type: 'symbol',
              symbolType: 'stroke',
              symbolOpacity: 1,
              symbolLimit: 40,
              labelLimit: 190,
              symbolStrokeWidth: 2,
              labelExpr: 'keyText[datum.value]'
            }
          }
        }
      },
      {
        name: 'hover',
        data: { name: 'rows' },
        mark: { type: 'point', size: 60, opacity: 0, clip: true },
        encoding: {
          x: { field: 'x', type: 'quantitative' },
          y: { field: 'value', type: 'quantitative' },
          tooltip: [
            { field: 'x', title: '$xTitle' },
            { field: 'name', title: '$colorTitle' },
            { field: 'value', title: '$yTitle' }
          ]
        }
      }
    ]
  },
  'moment-map': {
    description:
      "A statistic of groups of tensors as group by step, drawn as one picture with the groups' names, and the colour scale.",
    title: { text: { expr: 'title' }, subtitle: { expr: 'caption' }, anchor: 'start', offset: 8 },
    params: [
      { name: 'title', value: '' },
      { name: 'caption', value: [] },
      { name: 'x0', value: 0 },
      { name: 'x1', value: 1 },
      { name: 'y0', value: 0 },
      { name: 'y1', value: 1 },
      { name: 'rowAt', value: [] },
      { name: 'rowText', value: [] },
      { name: 'legendLow', value: 0 },
      { name: 'legendAt', value: [0, 1] },
      { name: 'legendText', value: ['', ''] }
    ],
    datasets: { pictures: [], legend: [] },
    spacing: 12,
    hconcat: [
      {
        name: 'cell',
        data: { name: 'pictures' },
        width: 600,
        height: 280,
        mark: { type: 'image', aspect: false, clip: true, smooth: false },
        encoding: {
          url: { field: 'url' },
          x: {
            field: 'x',
            type: 'quantitative',
            scale: { domain: [{ expr: 'x0' }, { expr: 'x1' }], nice: false, zero: false },
            title: '$xTitle',
            axis: {
              grid: false,
              labelExpr: "datum.value % 1 === 0 ? join(split(format(datum.value, ',d'), ','), ' ') : ''",
              tickMinStep: 1,
              labelSeparation: 8
            }
          },
          x2: { field: 'x2' },
          y: {
            field: 'y',
            type: 'quantitative',
            scale: { domain: [{ expr: 'y0' }, { expr: 'y1' }], nice: false, zero: false, reverse: true },
            title: '$yTitle',
            axis: {
              grid: false,
              values: { expr: 'rowAt' },
              labelExpr: 'rowText[indexof(rowAt, datum.value)]',
              labelLimit: 240,
              labelOverlap: true,
              minExtent: 34
            }
          },
          y2: { field: 'y2' }
        }
      },
      {
        name: 'ramp',
        data: { name: 'legend' },
        width: 12,
        height: 280,
        mark: { type: 'rect' },
        encoding: {
          y: {
            field: 'from',
            type: 'quantitative',
            title: '$legendTitle',
            scale: { domain: [{ expr: 'legendLow' }, 1], nice: false, zero: false },
            axis: {
              orient: 'right',
              grid: false,
              domain: false,
              values: { expr: 'legendAt' },
              labelExpr: 'legendText[indexof(legendAt, datum.value)]'
            }
          },
          y2: { field: 'to' },
          color: { field: 'color', type: 'nominal', scale: null }
        }
      }
    ]
  },
  scalars: {
    description:
      'Named scalars over steps or time, one panel for each unit; smoothed series lie over their faint raw numbers.',
    title: { text: { expr: 'title' }, subtitle: { expr: 'caption' }, anchor: 'start', offset: 8 },
    params: [
      { name: 'title', value: '' },
      { name: 'caption', value: [] },
      { name: 'x0', value: 0 },
      { name: 'x1', value: 1 },
      { name: 'headers', value: {} }
    ],
    datasets: { rows: [] },
    data: { name: 'rows' },
    facet: {
      row: {
        field: 'panel',
        type: 'ordinal',
        header: {
          title: null,
          labelExpr: 'headers[datum.value]',
          labelOrient: 'top',
          labelAnchor: 'start',
          labelAngle: 0,
          labelPadding: -10
        }
      }
    },
    spacing: 8,
    resolve: { scale: { y: 'independent' } },
    spec: {
      name: 'cell',
      width: 600,
      height: 220,
      layer: [
        {
          name: 'lines',
          mark: { type: 'line', clip: true, strokeWidth: 1.5, invalid: 'break-paths-show-path-domains' },
          encoding: {
            x: {
              field: 'x',
              type: 'quantitative',
              scale: { domain: [{ expr: 'x0' }, { expr: 'x1' }], nice: false, zero: false },
              title: '$xTitle',
              axis: { labelExpr: '$xLabel', labelOverlap: true, labelSeparation: 8 }
            },
            y: {
              field: 'value',
              type: 'quantitative',
              scale: { zero: false, nice: true, type: '$yScale' },
              title: null,
              axis: {
                labelExpr:
                  "abs(datum.value) >= 1e5 || (datum.value != 0 && abs(datum.value) < 1e-5) ? format(datum.value, '.3~e') : join(split(format(datum.value, ',.4~r'), ','), ' ')",
                minExtent: 44,
                tickCount: 6
              }
            },
            color: {
              field: 'name',
              type: 'nominal',
              title: null,
              sort: null,
              legend: { orient: 'top', symbolType: 'stroke', symbolStrokeWidth: 2 }
            },
            detail: { field: 'kind' },
            opacity: { condition: { test: "datum.kind === 'faint'", value: 0.28 }, value: 1 }
          }
        },
        {
          name: 'nonfinite',
          transform: [{ filter: "datum.kind === 'nonfinite'" }],
          mark: { type: 'tick', orient: 'vertical', size: 8, thickness: 2, opacity: 1, clip: true },
          encoding: {
            x: { field: 'x', type: 'quantitative' },
            y: { value: 4 },
            color: { field: 'color', type: 'nominal', scale: null },
            tooltip: [
              { field: 'x', title: '$xTitle' },
              { field: 'name', title: 'non-finite' }
            ]
          }
        },
        {
          name: 'hover',
          transform: [{ filter: "datum.kind !== 'nonfinite'" }],
          mark: { type: 'point', size: 60, opacity: 0, clip: true },
          encoding: {
            x: { field: 'x', type: 'quantitative' },
            y: { field: 'value', type: 'quantitative' },
            tooltip: [
              { field: 'x', title: '$xTitle' },
              { field: 'name', title: 'name' },
              { field: 'value', title: 'value' }
            ]
          }
        }
      ]
    }
  },
  'trend-heatmap': {
    description: 'A statistic as layer by step, drawn as one picture, and the colour scale.',
    title: { text: { expr: 'title' }, subtitle: { expr: 'caption' }, anchor: 'start', offset: 8 },
    params: [
      { name: 'title', value: '' },
      { name: 'caption', value: [] },
      { name: 'x0', value: 0 },
      { name: 'x1', value: 1 },
      { name: 'y0', value: 0 },
      { name: 'y1', value: 1 },
      { name: 'legendLow', value: 0 },
      { name: 'legendAt', value: [0, 1] },
      { name: 'legendText', value: ['', ''] }
    ],
    datasets: { pictures: [], legend: [] },
    spacing: 12,
    hconcat: [
      {
        name: 'cell',
        data: { name: 'pictures' },
        width: 600,
        height: 280,
        mark: { type: 'image', aspect: false, clip: true, smooth: false },
        encoding: {
          url: { field: 'url' },
          x: {
            field: 'x',
            type: 'quantitative',
            scale: { domain: [{ expr: 'x0' }, { expr: 'x1' }], nice: false, zero: false },
            title: '$xTitle',
            axis: {
              grid: false,
              labelExpr: "datum.value % 1 === 0 ? join(split(format(datum.value, ',d'), ','), ' ') : ''",
              tickMinStep: 1,
              labelSeparation: 8
            }
          },
          x2: { field: 'x2' },
          y: {
            field: 'y',
            type: 'quantitative',
            scale: { domain: [{ expr: 'y0' }, { expr: 'y1' }], nice: false, zero: false, reverse: true },
            title: '$yTitle',
            axis: {
              grid: false,
              labelExpr: "datum.value % 1 === 0 ? join(split(format(datum.value, ',d'), ','), ' ') : ''",
              tickMinStep: 1,
              minExtent: 34
            }
          },
          y2: { field: 'y2' }
        }
      },
      {
        name: 'ramp',
        data: { name: 'legend' },
        width: 12,
        height: 280,
        mark: { type: 'rect' },
        encoding: {
          y: {
            field: 'from',
            type: 'quantitative',
            title: '$legendTitle',
            scale: { domain: [{ expr: 'legendLow' }, 1], nice: false, zero: false },
            axis: {
              orient: 'right',
              grid: false,
              domain: false,
              values: { expr: 'legendAt' },
              labelExpr: 'legendText[indexof(legendAt, datum.value)]'
            }
          },
          y2: { field: 'to' },
          color: { field: 'color', type: 'nominal', scale: null }
        }
      }
    ]
  },
  'trend-lines': {
    description:
      'A statistic of each layer over steps, one line a layer in ordered colours; steps with non-finite values are marked along the top.',
    title: { text: { expr: 'title' }, subtitle: { expr: 'caption' }, anchor: 'start', offset: 8 },
    params: [
      { name: 'title', value: '' },
      { name: 'caption', value: [] },
      { name: 'x0', value: 0 },
      { name: 'x1', value: 1 },
      { name: 'y0', value: 0 },
      { name: 'y1', value: 1 },
      { name: 'firstLayer', value: 1 },
      { name: 'lastLayer', value: 1 }
    ],
    datasets: { rows: [], band: [], nonfinite: [] },
    width: 600,
    height: 280,
    layer: [
      {
        name: 'band',
        data: { name: 'band' },
        mark: {
          type: 'area',
          clip: true,
          opacity: 0.22,
          line: false,
          invalid: 'break-paths-show-path-domains'
        },
        encoding: {
          x: { field: 'step', type: 'quantitative' },
          y: { field: 'low', type: 'quantitative' },
          y2: { field: 'high' },
          color: { field: 'layer', type: 'quantitative' },
          detail: { field: 'layer' }
        }
      },
      {
        name: 'lines',
        data: { name: 'rows' },
        mark: { type: 'line', clip: true, strokeWidth: 1.5, invalid: 'break-paths-show-path-domains' },
        encoding: {
          x: {
            field: 'step',
            type: 'quantitative',
            scale: { domain: [{ expr: 'x0' }, { expr: 'x1' }], nice: false, zero: false },
            title: '$xTitle',
            axis: {
              labelExpr: "datum.value % 1 === 0 ? join(split(format(datum.value, ',d'), ','), ' ') : ''",
              tickMinStep: 1,
              labelSeparation: 8
            }
          },
          y: {
            field: 'value',
            type: 'quantitative',
            scale: { domain: [{ expr: 'y0' }, { expr: 'y1' }], nice: false, zero: false, type: '$yScale' },
            title: '$yTitle',
            axis: {
              labelExpr:
                "abs(datum.value) >= 1e5 || (datum.value != 0 && abs(datum.value) < 1e-5) ? format(datum.value, '.3~e') : join(split(format(datum.value, ',.4~r'), ','), ' ')",
              minExtent: 44,
              tickCount: 6
            }
          },
          color: {
            field: 'layer',
            type: 'quantitative',
            title: '$colorTitle',
            scale: { domain: [{ expr: 'firstLayer' }, { expr: 'lastLayer' }], nice: false, zero: false },
            legend: { type: 'symbol', symbolType: 'stroke', tickMinStep: 1, format: 'd' }
          },
          detail: { field: 'layer' }
        }
      },
      {
        name: 'nonfinite',
        data: { name: 'nonfinite' },
        mark: { type: 'tick', orient: 'vertical', size: 8, thickness: 2, opacity: 1, clip: true },
        encoding: {
          x: { field: 'step', type: 'quantitative' },
          y: { value: 4 },
          color: { field: 'color', type: 'nominal', scale: null },
          tooltip: [
            { field: 'step', title: 'step' },
            { field: 'layer', title: 'layer' },
            { field: 'count', title: 'non-finite values' }
          ]
        }
      },
      {
        name: 'hover',
        data: { name: 'rows' },
        mark: { type: 'point', size: 60, opacity: 0, clip: true },
        encoding: {
          x: { field: 'step', type: 'quantitative' },
          y: { field: 'value', type: 'quantitative' },
          tooltip: [
            { field: 'step', title: 'step' },
            { field: 'layer', title: 'layer' },
            { field: 'value', title: '$yTitle' }
          ]
        }
      }
    ]
  }
};
