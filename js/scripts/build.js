import { build } from "./setup.js";

build();
