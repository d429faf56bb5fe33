export { Chart, type IChartOptions, TextSpace } from './chart';
export {
  ColorScale,
  colorTable,
  hexOf,
  mixed,
  type Extent,
  type IColorLook,
  type Transform,
  lowMagnitude,
  contrastColor,
  flagColor,
  legend,
  type IColorLegend,
  type ILegendWords,
  SigmaScale
} from './color-scale';
export {
  greatestOf,
  middleOf,
  telling,
  domains,
  frames,
  locate,
  type IPlotFrame,
  type IPlace,
  type ISceneView,
  type IMatrix,
  type IPixels
} from './pixels';
export {
  followPointer,
  type IPointerFollower,
  Zoom,
  type Interval,
  type IZoomable,
  type IZoomOptions
} from './zoom';
export { formatBytes, formatCount, formatFull, formatInteger, formatNumber, timeWords } from './format';
export { default as COLORS } from '#protocol/charts/colors.json';
export {
  toDataUrl,
  type IPicture,
  Pictures,
  drawSVG,
  sized,
  vegaLiteSpec,
  withView,
  type ICaption,
  type ILook
} from './pictures';
export { ChartError, fill, type IOmissions, type IRecipe, type Row } from './recipe';
export { DARK_THEME, LIGHT_THEME, readTheme, themeConfig, watchTheme, type ITheme, warmVega } from './vega';
