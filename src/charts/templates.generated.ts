// Generated from protocol/charts/*.vl.json by scripts/generate-protocol.mjs. Do not edit: run `npm run generate`.

/** Name of a chart template. */
export type TemplateName =
  | 'alarm-marks'
  | 'heatmap'
  | 'line-panels'
  | 'lines'
  | 'moment-map'
  | 'pipeline'
  | 'points'
  | 'timeline'
  | 'token-map'
  | 'tokens'
  | 'trend-heatmap';

/** Vega-Lite templates by name. Not to be changed: copy before filling. */
export const TEMPLATES: Readonly<Record<TemplateName, Readonly<Record<string, unknown>>>> = {
  'alarm-marks': {
    description: 'Marks at steps and layers: alarms by severity.',
    title: { text: { expr: 'title' }, subtitle: { expr: 'caption' }, anchor: 'start', offset: 8 },
    params: [
      { name: 'title', value: '' },
      { name: 'caption', value: [] },
      { name: 'x0', value: 0 },
      { name: 'x1', value: 1 },
      { name: 'y0', value: 0 },
      { name: 'y1', value: 1 },
      { name: 'rowNames', value: {} },
      { name: 'rowTicks', value: [] },
      { name: 'eventSpace', value: 0 }
    ],
    datasets: { marks: [], events: [] },
    width: 600,
    height: 200,
    layer: [
      {
        name: 'marks',
        data: { name: 'marks' },
        mark: { type: 'point', filled: true, clip: true, opacity: 0.9 },
        encoding: {
          x: {
            field: 'x',
            type: 'quantitative',
            scale: { domain: [{ expr: 'x0' }, { expr: 'x1' }], nice: false, zero: false },
            title: '$xTitle',
            axis: {
              grid: false,
              labelExpr: "datum.value % 1 === 0 ? join(split(format(datum.value, ',d'), ','), ' ') : ''",
              tickMinStep: 1,
              labelSeparation: 8,
              tickCount: 10,
              offset: { expr: 'eventSpace' }
            }
          },
          y: {
            field: 'y',
            type: 'quantitative',
            scale: { domain: [{ expr: 'y0' }, { expr: 'y1' }], nice: false, zero: false, reverse: true },
            title: '$yTitle',
            axis: {
              grid: true,
              values: { expr: 'rowTicks' },
              labelExpr: 'rowNames[datum.value]',
              labelOverlap: 'greedy',
              minExtent: 52
            }
          },
          size: { field: 'size', type: 'quantitative', scale: null },
          color: { field: 'color', type: 'nominal', scale: null },
          shape: { field: 'shape', type: 'nominal', scale: null },
          tooltip: [{ field: 'text', title: 'alarms' }],
          description: { field: 'text' }
        }
      },
      {
        name: 'event-spans',
        data: { name: 'events' },
        transform: [
          { filter: 'datum.x2 >= x0 && datum.x <= x1' },
          { calculate: 'max(datum.x, x0)', as: 'from' },
          { calculate: 'min(datum.x2, x1)', as: 'to' }
        ],
        mark: { type: 'rule', aria: false, strokeWidth: 3, opacity: 0.6, clip: false, yOffset: 6 },
        encoding: {
          x: { field: 'from', type: 'quantitative' },
          x2: { field: 'to' },
          y: { value: 'height' },
          color: { field: 'color', type: 'nominal', scale: null }
        }
      },
      {
        name: 'events',
        data: { name: 'events' },
        transform: [
          { filter: 'datum.x2 >= x0 && datum.x <= x1' },
          { calculate: 'max(datum.x, x0)', as: 'from' },
          { calculate: 'min(datum.x2, x1)', as: 'to' }
        ],
        mark: { type: 'point', filled: true, size: 34, opacity: 1, clip: false, yOffset: 6 },
        encoding: {
          x: { field: 'from', type: 'quantitative' },
          y: { value: 'height' },
          color: { field: 'color', type: 'nominal', scale: null },
          shape: { field: 'shape', type: 'nominal', scale: null },
          tooltip: [{ field: 'text', title: 'event' }],
          description: { field: 'text' }
        }
      }
    ]
  },
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
      { name: 'rowTokens', value: [] },
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
          mark: { type: 'image', aria: false, aspect: false, clip: true, smooth: false },
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
                labelExpr:
                  "rowTokens[datum.value] != null ? rowTokens[datum.value] : datum.value % 1 === 0 ? join(split(format(datum.value, ',d'), ','), ' ') : ''",
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
  'line-panels': {
    description: 'Lines as in the template lines, one panel for each unit.',
    title: { text: { expr: 'title' }, subtitle: { expr: 'caption' }, anchor: 'start', offset: 8 },
    params: [
      { name: 'title', value: '' },
      { name: 'caption', value: [] },
      { name: 'x0', value: 0 },
      { name: 'x1', value: 1 },
      { name: 'ys', value: [[0, 1]] },
      { name: 'headers', value: {} },
      { name: 'keyColors', value: [] },
      { name: 'eventSpace', value: 0 }
    ],
    datasets: { rows: [], events: [] },
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
          mark: {
            type: 'line',
            clip: true,
            strokeWidth: 1.5,
            invalid: 'break-paths-show-path-domains',
            strokeJoin: 'round'
          },
          encoding: {
            x: {
              field: 'x',
              type: 'quantitative',
              scale: { domain: [{ expr: 'x0' }, { expr: 'x1' }], nice: false, zero: false },
              title: '$xTitle',
              axis: {
                labelExpr: '$xLabel',
                values: { expr: '$xTicks' },
                tickMinStep: 1,
                labelOverlap: true,
                labelSeparation: 8,
                tickCount: 10,
                offset: { expr: 'eventSpace' }
              }
            },
            y: {
              field: 'value',
              type: 'quantitative',
              scale: {
                domain: [
                  { expr: '(ys[parent.panel] || [0, 1])[0]' },
                  { expr: '(ys[parent.panel] || [0, 1])[1]' }
                ],
                zero: false,
                nice: false,
                type: '$yScale'
              },
              title: null,
              axis: {
                labelExpr:
                  "abs(datum.value) >= 1e5 || (datum.value != 0 && abs(datum.value) < 1e-5) ? format(datum.value, '.3~e') : join(split(format(datum.value, ',.4~r'), ','), ' ')",
                minExtent: 44,
                tickCount: 6
              }
            },
            color: {
              field: 'label',
              type: 'nominal',
              title: null,
              sort: null,
              scale: {
                range: [
                  { expr: 'keyColors[0]' },
                  { expr: 'keyColors[1]' },
                  { expr: 'keyColors[2]' },
                  { expr: 'keyColors[3]' },
                  { expr: 'keyColors[4]' },
                  { expr: 'keyColors[5]' },
                  { expr: 'keyColors[6]' },
                  { expr: 'keyColors[7]' },
                  { expr: 'keyColors[8]' },
                  { expr: 'keyColors[9]' },
                  { expr: 'keyColors[10]' },
                  { expr: 'keyColors[11]' },
                  { expr: 'keyColors[12]' },
                  { expr: 'keyColors[13]' },
                  { expr: 'keyColors[14]' },
                  { expr: 'keyColors[15]' },
                  { expr: 'keyColors[16]' },
                  { expr: 'keyColors[17]' },
                  { expr: 'keyColors[18]' },
                  { expr: 'keyColors[19]' },
                  { expr: 'keyColors[20]' },
                  { expr: 'keyColors[21]' },
                  { expr: 'keyColors[22]' },
                  { expr: 'keyColors[23]' }
                ]
              },
              legend: { orient: 'top', symbolType: 'stroke', symbolStrokeWidth: 2, labelLimit: 190 }
            },
            detail: { field: 'line' },
            opacity: { field: 'opacity', type: 'quantitative', scale: null, legend: null },
            strokeDash: { field: 'dash', type: 'nominal', scale: null, legend: null }
          }
        },
        {
          name: 'points',
          transform: [{ filter: 'datum.alone' }],
          mark: { type: 'point', filled: true, size: 24, clip: true, opacity: 1 },
          encoding: {
            x: { field: 'x', type: 'quantitative' },
            y: { field: 'value', type: 'quantitative' },
            color: { field: 'color', type: 'nominal', scale: null }
          }
        },
        {
          name: 'nonfinite',
          transform: [{ filter: 'datum.bad' }],
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
          name: 'event-spans',
          data: { name: 'events' },
          transform: [
            { filter: 'datum.x2 >= x0 && datum.x <= x1' },
            { calculate: 'max(datum.x, x0)', as: 'from' },
            { calculate: 'min(datum.x2, x1)', as: 'to' }
          ],
          mark: { type: 'rule', aria: false, strokeWidth: 3, opacity: 0.6, clip: false, yOffset: 6 },
          encoding: {
            x: { field: 'from', type: 'quantitative' },
            x2: { field: 'to' },
            y: { value: 'height' },
            color: { field: 'color', type: 'nominal', scale: null }
          }
        },
        {
          name: 'events',
          data: { name: 'events' },
          transform: [
            { filter: 'datum.x2 >= x0 && datum.x <= x1' },
            { calculate: 'max(datum.x, x0)', as: 'from' },
            { calculate: 'min(datum.x2, x1)', as: 'to' }
          ],
          mark: { type: 'point', filled: true, size: 34, opacity: 1, clip: false, yOffset: 6 },
          encoding: {
            x: { field: 'from', type: 'quantitative' },
            y: { value: 'height' },
            color: { field: 'color', type: 'nominal', scale: null },
            shape: { field: 'shape', type: 'nominal', scale: null },
            tooltip: [{ field: 'text', title: 'event' }],
            description: { field: 'text' }
          }
        },
        {
          name: 'hover',
          transform: [{ filter: '!datum.bad' }],
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
  lines: {
    description:
      'Lines over steps, time or tokens, or over layers at one step; bands about them, and bars. A line breaks where a value is null. Stretches with non-finite values are marked along the top.',
    title: { text: { expr: 'title' }, subtitle: { expr: 'caption' }, anchor: 'start', offset: 8 },
    params: [
      { name: 'title', value: '' },
      { name: 'caption', value: [] },
      { name: 'x0', value: 0 },
      { name: 'x1', value: 1 },
      { name: 'y0', value: 0 },
      { name: 'y1', value: 1 },
      { name: 'keyText', value: [] },
      { name: 'eventSpace', value: 0 },
      { name: 'labels', value: [] },
      { name: 'labelAt', value: [] },
      { name: 'mostTicks', value: 10 },
      { name: 'leastStep', value: 1 }
    ],
    datasets: { rules: [], band: [], pictures: [], bars: [], rows: [], nonfinite: [], key: [], events: [] },
    width: 600,
    height: 300,
    layer: [
      {
        name: 'band',
        data: { name: 'band' },
        mark: {
          type: 'area',
          clip: true,
          fillOpacity: 0.22,
          line: false,
          invalid: 'break-paths-show-path-domains'
        },
        encoding: {
          x: { field: 'x', type: 'quantitative' },
          y: { field: 'low', type: 'quantitative' },
          y2: { field: 'high' },
          color: { field: 'color', type: 'nominal', scale: null },
          detail: { field: 'line' }
        }
      },
      {
        name: 'pictures',
        data: { name: 'pictures' },
        mark: { type: 'image', aspect: false, clip: true, smooth: true, aria: false },
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
              labelExpr: '$xLabel',
              labelLimit: 240,
              values: { expr: '$xTicks' },
              tickMinStep: { expr: 'leastStep' },
              labelOverlap: true,
              labelSeparation: 8,
              tickCount: { expr: 'mostTicks' },
              offset: { expr: 'eventSpace' }
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
              labelLimit: 250,
              symbolStrokeWidth: 2,
              labelExpr: 'keyText[datum.value]'
            }
          }
        }
      },
      {
        name: 'rules',
        data: { name: 'rules' },
        transform: [{ filter: 'datum.x >= x0 && datum.x <= x1' }],
        layer: [
          {
            mark: { type: 'rule', aria: false, strokeWidth: 1.5, strokeDash: [4, 3], clip: true },
            encoding: {
              x: { field: 'x', type: 'quantitative' },
              color: { field: 'color', type: 'nominal', scale: null }
            }
          },
          {
            mark: {
              type: 'text',
              aria: false,
              align: { expr: "datum.x > (x0 + x1) / 2 ? 'right' : 'left'" },
              dy: -6,
              fontSize: 11
            },
            encoding: {
              x: { field: 'x', type: 'quantitative' },
              y: { value: 0 },
              text: { field: 'text' },
              color: { field: 'color', type: 'nominal', scale: null }
            }
          }
        ]
      },
      {
        name: 'event-spans',
        data: { name: 'events' },
        transform: [
          { filter: 'datum.x2 >= x0 && datum.x <= x1' },
          { calculate: 'max(datum.x, x0)', as: 'from' },
          { calculate: 'min(datum.x2, x1)', as: 'to' }
        ],
        mark: { type: 'rule', aria: false, strokeWidth: 3, opacity: 0.6, clip: false, yOffset: 6 },
        encoding: {
          x: { field: 'from', type: 'quantitative' },
          x2: { field: 'to' },
          y: { value: 'height' },
          color: { field: 'color', type: 'nominal', scale: null }
        }
      },
      {
        name: 'events',
        data: { name: 'events' },
        transform: [
          { filter: 'datum.x2 >= x0 && datum.x <= x1' },
          { calculate: 'max(datum.x, x0)', as: 'from' },
          { calculate: 'min(datum.x2, x1)', as: 'to' }
        ],
        mark: { type: 'point', filled: true, size: 34, opacity: 1, clip: false, yOffset: 6 },
        encoding: {
          x: { field: 'from', type: 'quantitative' },
          y: { value: 'height' },
          color: { field: 'color', type: 'nominal', scale: null },
          shape: { field: 'shape', type: 'nominal', scale: null },
          tooltip: [{ field: 'text', title: 'event' }],
          description: { field: 'text' }
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
      { name: 'legendText', value: ['', ''] },
      { name: 'eventSpace', value: 0 }
    ],
    datasets: { pictures: [], legend: [], events: [] },
    spacing: 12,
    hconcat: [
      {
        name: 'cell',
        width: 600,
        height: 280,
        layer: [
          {
            name: 'pictures',
            data: { name: 'pictures' },
            mark: { type: 'image', aria: false, aspect: false, clip: true, smooth: false },
            encoding: {
              url: { field: 'url' },
              x: {
                field: 'x',
                type: 'quantitative',
                scale: { domain: [{ expr: 'x0' }, { expr: 'x1' }], nice: false, zero: false },
                title: '$xTitle',
                axis: {
                  grid: false,
                  labelExpr: '$xLabel',
                  tickMinStep: 1,
                  labelSeparation: 8,
                  tickCount: 10,
                  offset: { expr: 'eventSpace' }
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
            name: 'event-spans',
            data: { name: 'events' },
            transform: [
              { filter: 'datum.x2 >= x0 && datum.x <= x1' },
              { calculate: 'max(datum.x, x0)', as: 'from' },
              { calculate: 'min(datum.x2, x1)', as: 'to' }
            ],
            mark: { type: 'rule', aria: false, strokeWidth: 3, opacity: 0.6, clip: false, yOffset: 6 },
            encoding: {
              x: { field: 'from', type: 'quantitative' },
              x2: { field: 'to' },
              y: { value: 'height' },
              color: { field: 'color', type: 'nominal', scale: null }
            }
          },
          {
            name: 'events',
            data: { name: 'events' },
            transform: [
              { filter: 'datum.x2 >= x0 && datum.x <= x1' },
              { calculate: 'max(datum.x, x0)', as: 'from' },
              { calculate: 'min(datum.x2, x1)', as: 'to' }
            ],
            mark: { type: 'point', filled: true, size: 34, opacity: 1, clip: false, yOffset: 6 },
            encoding: {
              x: { field: 'from', type: 'quantitative' },
              y: { value: 'height' },
              color: { field: 'color', type: 'nominal', scale: null },
              shape: { field: 'shape', type: 'nominal', scale: null },
              tooltip: [{ field: 'text', title: 'event' }],
              description: { field: 'text' }
            }
          }
        ]
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
              labelExpr: 'legendText[indexof(legendAt, datum.value)]',
              labelLimit: 160
            }
          },
          y2: { field: 'to' },
          color: { field: 'color', type: 'nominal', scale: null }
        }
      }
    ]
  },
  pipeline: {
    description:
      'What pipeline stages do in a step: operations as bars in lanes, groups of lanes under headings, and the number of each micro-batch where there is room.',
    title: { text: { expr: 'title' }, subtitle: { expr: 'caption' }, anchor: 'start', offset: 8 },
    params: [
      { name: 'title', value: '' },
      { name: 'caption', value: [] },
      { name: 'x0', value: 0 },
      { name: 'x1', value: 1 },
      { name: 'y0', value: 0 },
      { name: 'y1', value: 1 },
      { name: 'wholes', value: false },
      { name: 'rowNames', value: {} },
      { name: 'rowTicks', value: [] },
      { name: 'lineColor', value: '#888888' },
      { name: 'textColor', value: '#222222' },
      { name: 'keyText', value: [] }
    ],
    datasets: { pieces: [], numbers: [], headings: [], ends: [], path: [], key: [] },
    width: 600,
    height: 200,
    layer: [
      {
        name: 'pieces',
        data: { name: 'pieces' },
        mark: { type: 'rect', clip: true, aria: false },
        encoding: {
          x: {
            field: 'x',
            type: 'quantitative',
            scale: { domain: [{ expr: 'x0' }, { expr: 'x1' }], nice: false, zero: false },
            title: '$xTitle',
            axis: {
              grid: false,
              labelExpr:
                "wholes && datum.value !== round(datum.value) ? '' : join(split(format(datum.value, ',~f'), ','), ' ')",
              labelSeparation: 8,
              tickCount: 8
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
              ticks: false,
              values: { expr: 'rowTicks' },
              tickCount: 1000,
              labelOverlap: false,
              labelExpr: 'rowNames[datum.value]',
              minExtent: 52
            }
          },
          y2: { field: 'y2' },
          color: { field: 'color', type: 'nominal', scale: null },
          tooltip: [{ field: 'text', title: 'operation' }]
        }
      },
      {
        name: 'numbers',
        data: { name: 'numbers' },
        transform: [
          { filter: 'datum.x >= x0 && datum.x <= x1' },
          { filter: '(datum.x2 - datum.x1) / (x1 - x0) * width > datum.room' }
        ],
        mark: { type: 'text', aria: false, baseline: 'middle', fontSize: 10 },
        encoding: {
          x: { field: 'x', type: 'quantitative' },
          y: { field: 'y', type: 'quantitative' },
          text: { field: 'text' },
          color: { field: 'color', type: 'nominal', scale: null }
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
              symbolType: 'square',
              symbolOpacity: 1,
              labelLimit: 250,
              symbolStrokeWidth: 6,
              symbolSize: 60,
              labelExpr: 'keyText[datum.value]'
            }
          }
        }
      },
      {
        name: 'headings',
        data: { name: 'headings' },
        mark: { type: 'text', aria: false, align: 'left', baseline: 'middle', fontSize: 11, fontWeight: 600 },
        encoding: {
          x: { value: 2 },
          y: { field: 'y', type: 'quantitative' },
          text: { field: 'text' },
          color: { value: { expr: 'textColor' } }
        }
      },
      {
        name: 'ends',
        data: { name: 'ends' },
        mark: { type: 'rule', aria: false, strokeDash: [3, 3], clip: true },
        encoding: {
          x: { field: 'x', type: 'quantitative' },
          y: { field: 'y', type: 'quantitative' },
          y2: { field: 'y2' },
          color: { value: { expr: 'lineColor' } }
        }
      },
      {
        name: 'path',
        data: { name: 'path' },
        mark: { type: 'rule', aria: false, strokeWidth: 1.5, clip: true },
        encoding: {
          x: { field: 'x', type: 'quantitative' },
          x2: { field: 'x2' },
          y: { field: 'y', type: 'quantitative' },
          y2: { field: 'y2' },
          color: { value: { expr: 'textColor' } }
        }
      }
    ]
  },
  points: {
    description:
      'Points of a plane, such as a projection of vectors: coloured, some of them ringed or named.',
    title: { text: { expr: 'title' }, subtitle: { expr: 'caption' }, anchor: 'start', offset: 8 },
    params: [
      { name: 'title', value: '' },
      { name: 'caption', value: [] },
      { name: 'x0', value: 0 },
      { name: 'x1', value: 1 },
      { name: 'y0', value: 0 },
      { name: 'y1', value: 1 },
      { name: 'keyColor', value: '#606060' },
      { name: 'xName', value: '' },
      { name: 'yName', value: '' }
    ],
    datasets: { points: [], rings: [], names: [], key: [] },
    spacing: 14,
    hconcat: [
      {
        name: 'cell',
        width: 500,
        height: 420,
        layer: [
          {
            name: 'points',
            data: { name: 'points' },
            mark: { type: 'point', filled: true, clip: true, aria: false, strokeWidth: 0 },
            encoding: {
              x: {
                field: 'x',
                type: 'quantitative',
                scale: { domain: [{ expr: 'x0' }, { expr: 'x1' }], nice: false, zero: false },
                title: null,
                axis: {
                  grid: true,
                  labelExpr: "format(datum.value, '.3~g')",
                  labelSeparation: 8,
                  tickCount: 6
                }
              },
              y: {
                field: 'y',
                type: 'quantitative',
                scale: { domain: [{ expr: 'y0' }, { expr: 'y1' }], nice: false, zero: false, reverse: true },
                title: null,
                axis: { grid: true, labelExpr: "format(-datum.value, '.3~g')", tickCount: 6, minExtent: 40 }
              },
              color: { field: 'color', type: 'nominal', scale: null },
              shape: { field: 'shape', type: 'nominal', scale: null },
              size: { field: 'size', type: 'quantitative', scale: null },
              opacity: { field: 'opacity', type: 'quantitative', scale: null },
              tooltip: [{ field: 'text', title: 'token' }]
            }
          },
          {
            name: 'rings',
            data: { name: 'rings' },
            mark: { type: 'point', filled: false, clip: true, aria: false, shape: 'circle', opacity: 1 },
            encoding: {
              x: { field: 'x', type: 'quantitative' },
              y: { field: 'y', type: 'quantitative' },
              color: { field: 'color', type: 'nominal', scale: null },
              size: { field: 'size', type: 'quantitative', scale: null },
              strokeWidth: { field: 'width', type: 'quantitative', scale: null }
            }
          },
          {
            name: 'names',
            data: { name: 'names' },
            transform: [{ filter: 'datum.x >= x0 && datum.x <= x1 && datum.y >= y0 && datum.y <= y1' }],
            mark: {
              type: 'text',
              aria: false,
              align: { expr: "datum.x > (x0 + x1) / 2 ? 'right' : 'left'" },
              dx: { expr: 'datum.x > (x0 + x1) / 2 ? -9 : 9' },
              baseline: 'middle',
              fontSize: 11
            },
            encoding: {
              x: { field: 'x', type: 'quantitative' },
              y: { field: 'y', type: 'quantitative' },
              text: { field: 'text' },
              color: { field: 'color', type: 'nominal', scale: null }
            }
          },
          {
            name: 'xName',
            data: { values: [{}] },
            mark: { type: 'text', aria: false, clip: false, fontSize: 11, baseline: 'middle', dy: 31 },
            encoding: {
              x: { datum: { expr: '(x0 + x1) / 2' }, type: 'quantitative' },
              y: { value: 'height' },
              text: { value: { expr: 'xName' } },
              color: { value: { expr: 'keyColor' } }
            }
          },
          {
            name: 'yName',
            data: { values: [{}] },
            mark: {
              type: 'text',
              aria: false,
              clip: false,
              fontSize: 11,
              baseline: 'middle',
              angle: 270,
              dy: -50
            },
            encoding: {
              x: { value: 0 },
              y: { datum: { expr: '(y0 + y1) / 2' }, type: 'quantitative' },
              text: { value: { expr: 'yName' } },
              color: { value: { expr: 'keyColor' } }
            }
          }
        ]
      },
      {
        name: 'key',
        data: { name: 'key' },
        width: 168,
        height: { step: 15 },
        title: {
          text: '$colorTitle',
          anchor: 'start',
          fontSize: 11,
          fontWeight: 'normal',
          offset: 4,
          color: { expr: 'keyColor' }
        },
        layer: [
          {
            mark: { type: 'point', filled: true, aria: false, size: 56, strokeWidth: 0, opacity: 1 },
            encoding: {
              x: { value: 5 },
              y: { field: 'place', type: 'ordinal', axis: null },
              color: { field: 'color', type: 'nominal', scale: null },
              shape: { field: 'shape', type: 'nominal', scale: null }
            }
          },
          {
            mark: { type: 'text', aria: false, align: 'left', baseline: 'middle', fontSize: 11, limit: 152 },
            encoding: {
              x: { value: 16 },
              y: { field: 'place', type: 'ordinal', axis: null },
              text: { field: 'text' },
              color: { value: { expr: 'keyColor' } }
            }
          }
        ]
      }
    ]
  },
  timeline: {
    description:
      'What ranks do over time: stretches as bars in lanes, the beginnings of steps, and what a chosen stretch depends on.',
    title: { text: { expr: 'title' }, subtitle: { expr: 'caption' }, anchor: 'start', offset: 8 },
    params: [
      { name: 'title', value: '' },
      { name: 'caption', value: [] },
      { name: 'x0', value: 0 },
      { name: 'x1', value: 1 },
      { name: 'y0', value: 0 },
      { name: 'y1', value: 1 },
      { name: 'rowNames', value: {} },
      { name: 'rowTicks', value: [] },
      { name: 'stepColor', value: '#888888' },
      { name: 'linkColor', value: '#222222' },
      { name: 'keyText', value: [] }
    ],
    datasets: { pieces: [], steps: [], links: [], clocks: [], key: [] },
    width: 600,
    height: 200,
    layer: [
      {
        name: 'pieces',
        data: { name: 'pieces' },
        mark: { type: 'rect', clip: true, aria: false },
        encoding: {
          x: {
            field: 'x',
            type: 'quantitative',
            scale: { domain: [{ expr: 'x0' }, { expr: 'x1' }], nice: false, zero: false },
            title: '$xTitle',
            axis: {
              grid: false,
              labelExpr: "join(split(format(datum.value, ',~f'), ','), ' ')",
              labelSeparation: 8,
              tickCount: 8
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
              values: { expr: 'rowTicks' },
              tickCount: 1000,
              labelOverlap: false,
              labelExpr: 'rowNames[datum.value]',
              minExtent: 52
            }
          },
          y2: { field: 'y2' },
          color: { field: 'color', type: 'nominal', scale: null },
          tooltip: [{ field: 'text', title: 'span' }]
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
              symbolType: 'square',
              symbolOpacity: 1,
              labelLimit: 250,
              symbolStrokeWidth: 6,
              symbolSize: 60,
              labelExpr: 'keyText[datum.value]'
            }
          }
        }
      },
      {
        name: 'steps',
        data: { name: 'steps' },
        transform: [{ filter: 'datum.x >= x0 && datum.x <= x1' }],
        layer: [
          {
            mark: { type: 'rule', aria: false, strokeDash: [3, 3], clip: true },
            encoding: { x: { field: 'x', type: 'quantitative' }, color: { value: { expr: 'stepColor' } } }
          },
          {
            mark: { type: 'text', aria: false, align: 'left', dx: 3, dy: -5, fontSize: 10 },
            encoding: {
              x: { field: 'x', type: 'quantitative' },
              y: { value: 0 },
              text: { field: 'text' },
              color: { value: { expr: 'stepColor' } }
            }
          }
        ]
      },
      {
        name: 'clocks',
        data: { name: 'clocks' },
        mark: { type: 'rule', aria: false, strokeWidth: 3, clip: true },
        encoding: {
          x: { field: 'x', type: 'quantitative' },
          x2: { field: 'x2' },
          y: { field: 'y', type: 'quantitative' },
          color: { value: { expr: 'linkColor' } }
        }
      },
      {
        name: 'links',
        data: { name: 'links' },
        layer: [
          {
            mark: { type: 'rule', aria: false, strokeWidth: 1.5, clip: true },
            encoding: {
              x: { field: 'x', type: 'quantitative' },
              x2: { field: 'x2' },
              y: { field: 'y', type: 'quantitative' },
              y2: { field: 'y2' },
              color: { value: { expr: 'linkColor' } }
            }
          },
          {
            mark: { type: 'point', aria: false, filled: true, size: 36, clip: true },
            encoding: {
              x: { field: 'x2', type: 'quantitative' },
              y: { field: 'y2', type: 'quantitative' },
              color: { value: { expr: 'linkColor' } }
            }
          }
        ]
      }
    ]
  },
  'token-map': {
    description:
      'Layer by position of a text, drawn as one picture with texts and outlines of cells, the tokens under the positions, and the colour scale.',
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
      { name: 'labels', value: [] },
      { name: 'legendLow', value: 0 },
      { name: 'legendAt', value: [0, 1] },
      { name: 'legendText', value: ['', ''] }
    ],
    datasets: { pictures: [], cells: [], outlines: [], rules: [], legend: [] },
    spacing: 12,
    hconcat: [
      {
        name: 'cell',
        width: 600,
        height: 280,
        layer: [
          {
            name: 'pictures',
            data: { name: 'pictures' },
            mark: { type: 'image', aria: false, aspect: false, clip: true, smooth: false },
            encoding: {
              url: { field: 'url' },
              x: {
                field: 'x',
                type: 'quantitative',
                scale: { domain: [{ expr: 'x0' }, { expr: 'x1' }], nice: false, zero: false },
                title: '$xTitle',
                axis: {
                  grid: false,
                  values: { expr: '$xTicks' },
                  labelExpr: '$xLabel',
                  labelOverlap: false,
                  tickCount: 1000
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
                  labelOverlap: false,
                  tickCount: 1000,
                  minExtent: 34
                }
              },
              y2: { field: 'y2' }
            }
          },
          {
            name: 'texts',
            data: { name: 'cells' },
            transform: [
              {
                filter:
                  'datum.x > x0 - 0.5 && datum.x < x1 + 0.5 && datum.y > y0 - 0.5 && datum.y < y1 + 0.5 && cell_width >= datum.room * (x1 - x0) && height >= 11 * (y1 - y0)'
              }
            ],
            mark: { type: 'text', aria: false, clip: true, fontSize: 11, baseline: 'middle' },
            encoding: {
              x: { field: 'x', type: 'quantitative' },
              y: { field: 'y', type: 'quantitative' },
              text: { field: 'text' },
              color: { field: 'color', type: 'nominal', scale: null }
            }
          },
          {
            name: 'halos',
            data: { name: 'outlines' },
            mark: {
              type: 'rect',
              aria: false,
              clip: true,
              fillOpacity: 0,
              stroke: '#ffffff',
              strokeWidth: 3
            },
            encoding: {
              x: { field: 'x', type: 'quantitative' },
              x2: { field: 'x2' },
              y: { field: 'y', type: 'quantitative' },
              y2: { field: 'y2' }
            }
          },
          {
            name: 'outlines',
            data: { name: 'outlines' },
            mark: {
              type: 'rect',
              aria: false,
              clip: true,
              fillOpacity: 0,
              stroke: '#000000',
              strokeWidth: 1.25
            },
            encoding: {
              x: { field: 'x', type: 'quantitative' },
              x2: { field: 'x2' },
              y: { field: 'y', type: 'quantitative' },
              y2: { field: 'y2' }
            }
          },
          {
            name: 'rules',
            data: { name: 'rules' },
            transform: [{ filter: 'datum.x >= x0 && datum.x <= x1' }],
            layer: [
              {
                mark: { type: 'rule', aria: false, strokeWidth: 1.5, strokeDash: [4, 3], clip: true },
                encoding: {
                  x: { field: 'x', type: 'quantitative' },
                  color: { field: 'color', type: 'nominal', scale: null }
                }
              },
              {
                mark: {
                  type: 'text',
                  aria: false,
                  align: { expr: "datum.x > (x0 + x1) / 2 ? 'right' : 'left'" },
                  dy: -6,
                  fontSize: 11
                },
                encoding: {
                  x: { field: 'x', type: 'quantitative' },
                  y: { value: 0 },
                  text: { field: 'text' },
                  color: { field: 'color', type: 'nominal', scale: null }
                }
              }
            ]
          }
        ]
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
  tokens: {
    description:
      'A text as boxes of its tokens in lines, each with its text; lines and outlines mark some of them, and a strip says what the colours mean.',
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
      { name: 'legendAt', value: [] },
      { name: 'legendText', value: [] }
    ],
    datasets: { boxes: [], lines: [], outlines: [], texts: [], legend: [] },
    spacing: 10,
    vconcat: [
      {
        name: 'cell',
        width: 600,
        height: 200,
        layer: [
          {
            name: 'boxes',
            data: { name: 'boxes' },
            mark: { type: 'rect', aria: false, clip: true, cornerRadius: 2 },
            encoding: {
              x: {
                field: 'x',
                type: 'quantitative',
                scale: { domain: [{ expr: 'x0' }, { expr: 'x1' }], nice: false, zero: false },
                axis: null
              },
              x2: { field: 'x2' },
              y: {
                field: 'y',
                type: 'quantitative',
                scale: { domain: [{ expr: 'y0' }, { expr: 'y1' }], nice: false, zero: false, reverse: true },
                title: '$yTitle',
                axis: {
                  grid: false,
                  domain: false,
                  ticks: false,
                  values: { expr: 'rowAt' },
                  tickCount: 1000,
                  labelExpr: 'rowText[indexof(rowAt, datum.value)]',
                  labelLimit: 220,
                  labelOverlap: false,
                  labelPadding: 6,
                  minExtent: 20
                }
              },
              y2: { field: 'y2' },
              color: { field: 'color', type: 'nominal', scale: null }
            }
          },
          {
            name: 'lines',
            data: { name: 'lines' },
            mark: { type: 'rule', aria: false, clip: true, strokeWidth: 1.5 },
            encoding: {
              x: { field: 'x', type: 'quantitative' },
              x2: { field: 'x2' },
              y: { field: 'y', type: 'quantitative' },
              y2: { field: 'y2' },
              color: { field: 'color', type: 'nominal', scale: null }
            }
          },
          {
            name: 'outlines',
            data: { name: 'outlines' },
            mark: { type: 'rect', aria: false, clip: true, fillOpacity: 0, strokeWidth: 2, cornerRadius: 2 },
            encoding: {
              x: { field: 'x', type: 'quantitative' },
              x2: { field: 'x2' },
              y: { field: 'y', type: 'quantitative' },
              y2: { field: 'y2' },
              stroke: { field: 'color', type: 'nominal', scale: null }
            }
          },
          {
            name: 'texts',
            data: { name: 'texts' },
            mark: {
              type: 'text',
              aria: false,
              align: 'left',
              baseline: 'middle',
              clip: true,
              font: "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace",
              fontSize: 12
            },
            encoding: {
              x: { field: 'x', type: 'quantitative' },
              y: { field: 'y', type: 'quantitative' },
              text: { field: 'text' },
              color: { field: 'color', type: 'nominal', scale: null }
            }
          }
        ]
      },
      {
        name: 'strip',
        data: { name: 'legend' },
        width: 240,
        height: 10,
        mark: { type: 'rect', aria: false },
        encoding: {
          x: {
            field: 'from',
            type: 'quantitative',
            title: '$legendTitle',
            scale: { domain: [{ expr: 'legendLow' }, 1], nice: false, zero: false },
            axis: {
              grid: false,
              domain: false,
              values: { expr: 'legendAt' },
              labelExpr: 'legendText[indexof(legendAt, datum.value)]',
              labelOverlap: false,
              titleAnchor: 'start'
            }
          },
          x2: { field: 'to' },
          color: { field: 'color', type: 'nominal', scale: null }
        }
      }
    ]
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
      { name: 'legendText', value: ['', ''] },
      { name: 'eventSpace', value: 0 }
    ],
    datasets: { pictures: [], legend: [], events: [] },
    spacing: 12,
    hconcat: [
      {
        name: 'cell',
        width: 600,
        height: 280,
        layer: [
          {
            name: 'pictures',
            data: { name: 'pictures' },
            mark: { type: 'image', aria: false, aspect: false, clip: true, smooth: false },
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
                  labelSeparation: 8,
                  tickCount: 10,
                  offset: { expr: 'eventSpace' }
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
            name: 'event-spans',
            data: { name: 'events' },
            transform: [
              { filter: 'datum.x2 >= x0 && datum.x <= x1' },
              { calculate: 'max(datum.x, x0)', as: 'from' },
              { calculate: 'min(datum.x2, x1)', as: 'to' }
            ],
            mark: { type: 'rule', aria: false, strokeWidth: 3, opacity: 0.6, clip: false, yOffset: 6 },
            encoding: {
              x: { field: 'from', type: 'quantitative' },
              x2: { field: 'to' },
              y: { value: 'height' },
              color: { field: 'color', type: 'nominal', scale: null }
            }
          },
          {
            name: 'events',
            data: { name: 'events' },
            transform: [
              { filter: 'datum.x2 >= x0 && datum.x <= x1' },
              { calculate: 'max(datum.x, x0)', as: 'from' },
              { calculate: 'min(datum.x2, x1)', as: 'to' }
            ],
            mark: { type: 'point', filled: true, size: 34, opacity: 1, clip: false, yOffset: 6 },
            encoding: {
              x: { field: 'from', type: 'quantitative' },
              y: { value: 'height' },
              color: { field: 'color', type: 'nominal', scale: null },
              shape: { field: 'shape', type: 'nominal', scale: null },
              tooltip: [{ field: 'text', title: 'event' }],
              description: { field: 'text' }
            }
          }
        ]
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
  }
};
