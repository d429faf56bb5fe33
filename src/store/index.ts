export * from './live-run';
export * from './recorded-run';
export * from './runs';
export * from './scalar-store';
export * from './source';
export * from './store-error';
export * from './tensor-rows';
export * from './tensor-store';
