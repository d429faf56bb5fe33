/** Colours by role: the same values as protocol/charts/colors.json, which says what each is for (a test compares them). */
export const COLORS = {
  sequential: [
    '#440154',
    '#470d60',
    '#48196b',
    '#482373',
    '#472d7b',
    '#453781',
    '#424086',
    '#3f4a89',
    '#3b528b',
    '#375a8c',
    '#34638d',
    '#306b8e',
    '#2c728e',
    '#297a8e',
    '#27828e',
    '#23898e',
    '#21918d',
    '#1f988b',
    '#1f9f88',
    '#21a785',
    '#28ae80',
    '#32b57b',
    '#3ebc74',
    '#4dc26c',
    '#5dc963',
    '#6fce58',
    '#82d34c',
    '#96d840',
    '#abdc32',
    '#c0e025',
    '#d5e21b',
    '#eae51b',
    '#fde725'
  ],
  diverging: [
    '#134b85',
    '#1c5993',
    '#2567a2',
    '#2d75b0',
    '#3b83b9',
    '#4990c1',
    '#579dc8',
    '#69aacf',
    '#7db6d6',
    '#91c3dd',
    '#a4cde3',
    '#b4d6e7',
    '#c5deec',
    '#d4e6ef',
    '#dee9ef',
    '#e8ecee',
    '#f2efee',
    '#f5e9e2',
    '#f8e3d7',
    '#fadccb',
    '#f9d0bb',
    '#f7c2aa',
    '#f5b498',
    '#f0a387',
    '#ea9178',
    '#e37f68',
    '#db6c5a',
    '#d1594e',
    '#c74643',
    '#bc3339',
    '#ac2732',
    '#9c1a2c',
    '#8c0d25'
  ],
  layers: {
    light: [
      '#46095c',
      '#481c6e',
      '#472d7b',
      '#433d84',
      '#3d4d8a',
      '#375b8c',
      '#31688e',
      '#2b758e',
      '#26828e',
      '#218f8d',
      '#1f9b8a',
      '#22a784',
      '#30b47c',
      '#44bf70',
      '#60ca61',
      '#7fd24e',
      '#a1da39'
    ],
    dark: [
      '#35608d',
      '#306b8e',
      '#2b758e',
      '#27808e',
      '#238a8e',
      '#20958c',
      '#1f9f88',
      '#24aa83',
      '#2fb37c',
      '#40be73',
      '#56c667',
      '#6fce58',
      '#8ad647',
      '#a6db35',
      '#c4e023',
      '#e2e41a',
      '#fde725'
    ]
  },
  categorical: {
    light: ['#0072b2', '#d55e00', '#009e73', '#b3588f', '#3fa0d6', '#c98a00', '#5d5d9c', '#7f7f7f'],
    dark: ['#56a8e0', '#f08a4b', '#2fc79a', '#e08fc4', '#9bd3f5', '#f0b93a', '#a9a5ec', '#b0b0b0']
  },
  flags: [
    '#0072b2',
    '#d55e00',
    '#009e73',
    '#b3588f',
    '#c98a00',
    '#5d5d9c',
    '#3fa0d6',
    '#8a6d3b',
    '#6b8e23',
    '#a0405a',
    '#2f7f86',
    '#7f7f7f'
  ],
  nonfinite: ['#ff2bd6', '#5c004b']
} as const;

/**
 * Return the hue of a flag, the same in every view.
 *
 * @param flag Trace point by name.
 * @param known Every flag of the run in the order of `hello.flags`; a flag outside it takes the last, neutral colour.
 */
export function flagColor(flag: string, known: readonly string[]): string {
  const place = known.indexOf(flag);
  const hues = COLORS.flags.length - 1;
  return COLORS.flags[place < 0 ? hues : place % hues] ?? COLORS.flags[0];
}
